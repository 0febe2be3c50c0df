"""A fresh Python process that imports the packages of this tree, run to its end."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_python(*words: str, folder: Path, timeout_s: float) -> "subprocess.CompletedProcess[str]":
    """Run `python WORDS` in the folder; its status and what it printed."""
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )

"""Provenance of a run: versions of packages, platform, source revision and seeds."""

import importlib.metadata
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from training.config.run_config import RunConfig, compute_digest

PACKAGES = (
    "accelerate", "datasets", "emads", "langgraph", "networkx", "numpy", "ortools", "peft", "pyarrow",
    "pydantic", "safetensors", "scipy", "tokenizers", "torch", "transformers", "trl", "vllm",
)  # fmt: skip


def find_versions() -> dict[str, str | None]:
    """Installed version of each package that can change a result; None where it is not installed."""
    versions: dict[str, str | None] = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    return versions


def find_revision() -> str | None:
    """The git commit of the source tree, "+changes" if tracked files differ; None outside a clone."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        commit = _git(root, "rev-parse", "HEAD").strip()
        return f"{commit}+changes" if _git(root, "status", "--porcelain", "--untracked-files=no") else commit
    except (OSError, subprocess.SubprocessError):
        return None


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout


def describe_provenance(config: RunConfig) -> dict[str, Any]:
    """The content of provenance.json."""
    return {
        "created_s": time.time(),
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "machine": platform.machine(),
        "packages": find_versions(),
        "revision": find_revision(),
        "seeds": {"run": config.seed, "data": config.data.seed},
        "config_sha256": compute_digest(config),
    }

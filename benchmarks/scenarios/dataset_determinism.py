"""Equality of data folders over hash seeds and numbers of workers, byte by byte, in real processes.

    python -m benchmarks.scenarios.dataset_determinism --count 200 --hash-seeds 10 --workers 1,2,4

Prints one line per run and fails at the first difference.
"""

import argparse
import hashlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def hash_folder(folder: Path) -> dict[str, str]:
    """sha256 of every file, by path."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def generate(out: Path, arguments: argparse.Namespace, hash_seed: int, workers: int) -> dict[str, str]:
    """Make the folder in a process of its own, and say what is in it."""
    options = ["--count", arguments.count, "--difficulties", arguments.difficulties, "--processes", workers]
    subprocess.run(
        [sys.executable, "-m", "emads.cli", "generate", "--family", "all", "--out", out, *map(str, options)],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": str(hash_seed)},
        check=True,
        capture_output=True,
    )
    return hash_folder(out)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares data folders over hash seeds and workers.")
    parser.add_argument("--count", type=int, default=200, help="scenarios per family")
    parser.add_argument("--difficulties", default="1,2")
    parser.add_argument("--hash-seeds", type=int, default=10)
    parser.add_argument("--workers", default="1,2,4", help="numbers of worker processes")
    arguments = parser.parse_args()
    numbers = [int(number) for number in arguments.workers.split(",")]
    first: dict[str, str] = {}
    for hash_seed, workers in itertools.product(range(arguments.hash_seeds), numbers):
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            found = generate(Path(folder) / "data", arguments, hash_seed, workers)
        first = first or found
        differing = sorted(path for path in first.keys() | found.keys() if first.get(path) != found.get(path))
        verdict = f"DIFFERENT: {', '.join(differing)}" if differing else f"{len(found)} files identical"
        print(
            f"hash seed {hash_seed}, {workers} workers: {verdict} ({time.monotonic() - start:.0f} s)",
            flush=True,
        )
        if differing:
            sys.exit(1)
    digest = hashlib.sha256(json.dumps(first, sort_keys=True).encode()).hexdigest()[:16]
    print(f"{arguments.hash_seeds * len(numbers)} runs, all identical: {digest}")


if __name__ == "__main__":
    main()

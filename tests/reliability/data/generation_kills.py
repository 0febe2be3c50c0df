"""R8: kill -9 while a data folder is generated, then resume: every byte as without the kill."""

import hashlib
import io
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout, suppress
from functools import partial
from pathlib import Path

from emads.cli import main
from reliability.stages.prepared_runs import PreparedRuns
from reliability.trials import Trial, Trials

TIMEOUT_S = 180
REQUEST = ("--family", "risk", "--count", "1100")  # two shards


def _options(out: Path, processes: int) -> list[str]:
    return ["generate", *REQUEST, "--processes", str(processes), "--out", str(out)]


def _generate(out: Path, processes: int) -> list[str]:
    return [sys.executable, "-m", "emads.cli", *_options(out, processes)]


def hash_files(folder: Path) -> dict[str, str]:
    """sha256 of every file, by path."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def _wait_for(path: Path, process: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + TIMEOUT_S
    while not path.exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.005)


def _kill_at_random(out: Path, rng: random.Random, duration_s: float, *, whole_group: bool) -> bool:
    """Start generation and kill it; whether it was killed before its end."""
    process = subprocess.Popen(
        _generate(out, 2), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    _wait_for(out / "dataset.json", process)
    time.sleep(rng.uniform(0, 0.5 * duration_s))
    with suppress(ProcessLookupError):
        if whole_group:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.send_signal(signal.SIGKILL)
    return process.wait(TIMEOUT_S) == -signal.SIGKILL


def generation_kills(runs: PreparedRuns, count: int) -> Trials:
    """Yield so many kills, of the parent alone and of its whole process group in turn."""
    folder, rng = runs.fresh("generation"), random.Random(8)
    expected: list[tuple[dict[str, str], float]] = []

    def call(number: int) -> str:
        if not expected:
            start = time.monotonic()
            subprocess.run(_generate(folder / "whole", 2), check=True, capture_output=True)
            expected.append((hash_files(folder / "whole"), time.monotonic() - start))
        whole, duration_s = expected[0]
        out = folder / f"killed-{number}"
        while not _kill_at_random(out, rng, duration_s, whole_group=number % 2 == 1):
            shutil.rmtree(out)
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            status = main(_options(out, 1))
        same = status == 0 and hash_files(out) == whole
        shutil.rmtree(out)
        return "" if same else "another folder than without the kill"

    for number in range(count):
        group = "parent and workers" if number % 2 else "parent"
        yield Trial(f"{number}", group, partial(call, number))

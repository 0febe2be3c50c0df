"""Break data making on purpose: kills (R8), a teacher's faults (R11), spoilt rows (R14).

    python -m benchmarks.data_reliability                  # full counts, several minutes
    python -m benchmarks.data_reliability --only R14 --count 120

Prints a Markdown row per battery and ends with status 1 where a trial failed.
"""

import argparse
import asyncio
import importlib.util
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, suppress
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from benchmarks.corrupt_rows import CORRUPTIONS, try_corrupt_rows
from benchmarks.dataset_determinism import hash_folder
from simulator.engines.openai.client import ChatClient
from simulator.engines.openai.endpoint import EndpointSettings
from simulator.engines.openai.reply import EndpointError

ROOT = Path(__file__).parent.parent
TIMEOUT_S = 180
MOST_SECONDS_PER_FAULT = 1.0
FAMILIES = ("--family", "risk", "--family", "reconcile")


def _generate(out: Path, processes: int) -> list[str]:
    options = [*FAMILIES, "--count", "600", "--processes", str(processes), "--out", str(out)]
    return [sys.executable, "-m", "emads.cli", "generate", *options]


def _wait_for(path: Path, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + TIMEOUT_S
    while not path.exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.005)


def kill_and_resume(folder: Path, count: int) -> Iterator[str]:
    """R8: kill -9 at a random moment (parent alone, or the whole group), go on, compare every byte."""
    subprocess.run(_generate(folder / "first", 2), cwd=ROOT, check=True, capture_output=True)
    start = time.monotonic()
    subprocess.run(_generate(folder / "whole", 2), cwd=ROOT, check=True, capture_output=True)
    duration_s = time.monotonic() - start
    expected = hash_folder(folder / "whole")
    rng = random.Random(8)
    num_kills = 0
    while num_kills < count:
        out = folder / f"killed-{num_kills}"
        process = subprocess.Popen(
            _generate(out, 2),
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        _wait_for(out / "dataset.json", process)
        time.sleep(rng.uniform(0, 0.5 * duration_s))
        with suppress(ProcessLookupError):
            if num_kills % 2:
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.send_signal(signal.SIGKILL)
        if process.wait(TIMEOUT_S) == -signal.SIGKILL:
            num_kills += 1
            done = subprocess.run(_generate(out, 1), cwd=ROOT, capture_output=True)
            same = done.returncode == 0 and hash_folder(out) == expected
            yield "" if same else f"kill {num_kills}: another folder than without it"
        subprocess.run(["rm", "-rf", str(out)], check=True)


def _load_server() -> ModuleType:
    """The server of faults that the tests have."""
    path = ROOT / "tests" / "support" / "teacher_server.py"
    spec = importlib.util.spec_from_file_location("teacher_server", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["teacher_server"] = module
    spec.loader.exec_module(module)
    return module


def meet_faults(_folder: Path, count: int) -> Iterator[str]:
    """R11: each kind of fault so many times; half of them are met again at every attempt.

    Those must end as a failure of their name, the others in the reply that came after. Nothing may hang.
    """
    server_module = _load_server()
    for kind, name in server_module.NAMED.items():
        with server_module.serve(lambda _body: {"role": "assistant", "content": "done"}) as server:
            start, timeout_s = time.monotonic(), 0.5 if name == "timeout" else 5.0
            lasting = (count + 1) // 2
            server.faults = [kind] * lasting
            outcomes = list(_expect(server, name, lasting, num_retries=0, timeout_s=timeout_s))
            server.faults = [kind, None] * (count - lasting)
            outcomes += _expect(server, "", count - lasting, num_retries=1, timeout_s=timeout_s)
            took_s = time.monotonic() - start
            if took_s > 5 + MOST_SECONDS_PER_FAULT * count:
                outcomes[-1] = f"{kind} took {took_s:.0f} s"
            yield from outcomes


def _expect(server: Any, name: str, count: int, *, num_retries: int, timeout_s: float = 5.0) -> Iterator[str]:
    """So many requests one after another; "" for each that ends as named, or is answered where no name is."""
    settings = EndpointSettings(
        url=server.url,
        model="tiny",
        timeout_s=timeout_s,
        backoff_s=0.001,
        max_wait_s=0.1,
        max_retries=num_retries,
    )

    async def ask() -> list[str]:
        found = []
        async with ChatClient(settings) as client:
            for _ in range(count):
                try:
                    reply = await client.complete([{"role": "user", "content": "go"}], [])
                    found.append("" if reply.text == "done" else f"said {reply.text!r}")
                except EndpointError as error:
                    found.append(error.kind)
        return found

    for outcome in asyncio.run(ask()):
        yield "" if outcome == name else f"{outcome or 'a reply'} instead of {name or 'a reply'}"


def spoil_rows(folder: Path, count: int) -> Iterator[str]:
    """R14: one trial per spoilt row."""
    problems = try_corrupt_rows(folder, count)
    yield from problems
    yield from [""] * (count - len(problems))


class Battery(NamedTuple):
    """One row of the table."""

    probe: str
    full: int  # trials; of R11 per kind of fault
    trials: Callable[[Path, int], Iterator[str]]  # what went wrong, "" for a trial that went well


BATTERIES = {
    "R8": Battery("kill -9 while data is made, then go on: equal bytes", 50, kill_and_resume),
    "R11": Battery("faults of a teacher's endpoint: the reply or a named failure", 200, meet_faults),
    "R14": Battery(f"spoilt rows, {len(CORRUPTIONS)} kinds: named, clean rows kept", 5000, spoil_rows),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Breaks data making on purpose.")
    parser.add_argument("--only", action="append", choices=list(BATTERIES), help="repeatable; default: all")
    parser.add_argument("--count", type=int, help="trials, of R11 per kind; default: the full counts")
    arguments = parser.parse_args()
    print("| id | probe | trials | failed | seconds |\n| --- | --- | --- | --- | --- |", flush=True)
    num_failed = 0
    for name in arguments.only or BATTERIES:
        battery = BATTERIES[name]
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder, redirect_stderr(StringIO()):
            outcomes = list(battery.trials(Path(folder), arguments.count or battery.full))
        failed = [outcome for outcome in outcomes if outcome]
        num_failed += len(failed)
        seconds = f"{time.monotonic() - start:.0f}"
        print(f"| {name} | {battery.probe} | {len(outcomes):,} | {len(failed)} | {seconds} |", flush=True)
        for outcome in failed[:5]:
            print(f"  {name}: {outcome}", flush=True)
    sys.exit(bool(num_failed))


if __name__ == "__main__":
    main()

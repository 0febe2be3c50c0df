"""Memory that a process keeps: counted by the page faults of a process of its own."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from training.runs.workers import Task, run_tasks

PROBE = """
import resource, sys, torch
from training.runs.workers import keep_freed_memory

kept = keep_freed_memory() if sys.argv[1] == "keep" else None

def count_faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        torch.ones(8 * 2**20)  # 32 MiB: 8,192 pages
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

for _ in range(4):  # until freed memory lies where the next tensor fits
    faults = count_faults()
print(kept, faults)
"""


def probe(how: str) -> tuple[str, int]:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, how], capture_output=True, text=True, check=True, timeout=120
    )
    kept, faults = done.stdout.split()
    return kept, int(faults)


def test_a_process_that_keeps_memory_touches_no_page_twice() -> None:
    kept, faults = probe("keep")
    if kept == "False":  # no glibc
        return
    assert faults < 100
    assert probe("default")[1] > 500  # huge pages where the kernel gives them: 16 of 2 MiB and more


def take_and_free() -> None:
    import torch

    torch.ones(128 * 2**20)  # 512 MiB


def resident_mib(process: int | str = "self") -> float:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


READS_PROC = pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc"
)


@READS_PROC
def test_a_worker_gives_back_what_a_task_took() -> None:
    tasks = (
        Task(name="before", call=resident_mib),
        Task(name="take", call=take_and_free, after=("before",)),
        Task(name="after", call=resident_mib, after=("take",)),
    )
    found = run_tasks(tasks, num_workers=1, num_threads=1, title="t")
    assert found["after"] < found["before"] + 400


class _Player:
    def load(self) -> float:
        take_and_free()
        return resident_mib()


@contextmanager
def open_player() -> Iterator[Any]:
    yield _Player()


async def measure_host() -> tuple[float, float]:
    from training.rl.remote_hosts import IDLE_S, ProcessHost  # not above: workers import this file

    host = ProcessHost(open_player)
    await host.start()
    held = await host.call("load")
    await asyncio.sleep(IDLE_S)
    until = time.monotonic() + 20
    while (idle := resident_mib(host.process.pid or 0)) > held - 400 and time.monotonic() < until:
        await asyncio.sleep(0.1)
    host.close()
    return held, idle


@READS_PROC
@pytest.mark.process
def test_a_rollout_host_that_waits_gives_back_what_its_plays_took() -> None:
    """The learner trains meanwhile, on the same machine."""
    held, idle = asyncio.run(measure_host())
    assert idle < held - 400

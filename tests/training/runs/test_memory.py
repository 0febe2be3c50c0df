"""Memory that a process keeps: counted by the page faults of a process of its own."""

import subprocess
import sys

PROBE = """
import resource, sys, torch
from training.runs.memory import keep_freed_memory

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

"""L1: hundreds of governed episodes leave memory and descriptors as they were; a leak would be seen."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from reliability.governed.memory_growth import Reading, measure_growth

ROOT = Path(__file__).parent.parent.parent.parent
LEAKING = """
import sys
import reliability.governed.memory_growth as growth

play, kept = growth.play_assess, []

async def leak(cases, stream):
    kept.append(bytearray(b"x" * len(cases) * 200_000))
    {descriptor}
    await play(cases, stream)

growth.play_assess = leak
sys.argv = ["growth", "--episodes=200", "--protocol=assess"]
sys.exit(growth.main())
"""


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
    )


@pytest.mark.process
def test_five_hundred_governed_episodes_leave_nothing_behind() -> None:
    done = run("-m", "reliability.governed.memory_growth", "--episodes=500")
    assert done.stdout.splitlines()[-1].startswith("flat: "), done.stdout + done.stderr
    assert done.stdout.count("\n| ") == 20
    assert done.returncode == 0


@pytest.mark.process
@pytest.mark.parametrize(
    ("line", "unit"), [("pass", "MiB"), ("kept[-1:] = [open('/dev/null')]", "descriptors")]
)
def test_a_leak_is_seen(line: str, unit: str) -> None:
    done = run("-c", LEAKING.format(descriptor=line))
    assert done.stdout.splitlines()[-1].startswith("GROWS: +"), done.stdout + done.stderr
    assert done.returncode == 1
    amounts = re.findall(r"([+-][\d.]+) (MiB|descriptors)", done.stdout.splitlines()[-1])
    assert float({of: amount for amount, of in amounts}[unit]) >= 5


def test_growth_by_hand() -> None:
    memory = [100, 180, 120, 122, 150, 150, 131, 133]
    descriptors = [3, 4, 7, 6, 9, 9, 8, 7]
    readings = [
        Reading(episodes=number, memory_mib=float(m), descriptors=d, seconds=1.0)
        for number, (m, d) in enumerate(zip(memory, descriptors, strict=True))
    ]
    assert measure_growth(readings) == (132 - 121, 8 - 7)
    with pytest.raises(ValueError, match="at least 8"):
        measure_growth(readings[:7])

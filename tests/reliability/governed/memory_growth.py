"""L1: thousands of scripted episodes in one process: memory and file descriptors stay flat.

    PYTHONPATH=tests python -m reliability.governed.memory_growth --episodes 10000 --protocol full
    PYTHONPATH=tests python -m reliability.governed.memory_growth --episodes 10000 --protocol assess

Episodes are played in 20 calls with 64 in flight, `full` ones in a store on disk; resident memory and
open descriptors are read after every call. Flat: the median of the last quarter of the calls is at most
`--tolerance` MiB over that of the second quarter, and no descriptor was added.
"""

import argparse
import asyncio
import gc
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from roles.registry import ROLES
from roles.team import RECONCILER, SPECIALISTS
from scenarios.team import PlanGame, TeamScenario, generate
from simulator.chat import PlainChat
from simulator.engines.base import Sampling
from simulator.engines.scripted import ScriptedEngine
from simulator.governance.outcomes import SimulatedOutcomes
from simulator.governance.reviewers import SimulatedReviewer
from simulator.governance.runner import GovernanceServices, open_services, play_governed
from simulator.graph.runner import play_episodes
from simulator.graph.seating import Seating

NUM_CALLS, IN_FLIGHT, TOLERANCE_MIB = 20, 64, 10.0
REPORT = '{"offers": [], "needs": [], "veto": []}'
DECISION = '{"option": "A", "fund": [], "escalate": false}'
NUM_CASES = 50  # drawn; the others are the same under other indices


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Memory and descriptors of the process after a call.

    Example: Reading(episodes=500, memory_mib=182.5, descriptors=9, seconds=3.1)
    """

    episodes: int  # so far
    memory_mib: float  # resident
    descriptors: int
    seconds: float  # that the call took


def draw_cases(count: int) -> list[TeamScenario]:
    """`count` cases, of which NUM_CASES differ."""
    drawn = [generate("test", 0, index, 1) for index in range(min(count, NUM_CASES))]
    return [
        replace(case, case=replace(case.case, index=index))
        for index, case in zip(range(count), itertools.cycle(drawn), strict=False)
    ]


def make_seating() -> Seating:
    """Seats that give constant answers."""
    chat = PlainChat()
    policies = {role: lambda transcript: REPORT for role in SPECIALISTS}
    engine = ScriptedEngine(chat, {**policies, RECONCILER: lambda transcript: DECISION})
    return Seating(
        team={role: role for role in ROLES},
        engine=engine,
        chat=chat,
        sampling=Sampling(max_completion_tokens=100),
        stream="growth",
        max_turns=4,
        roles=ROLES,
        make_game=lambda case: PlanGame(case, "short"),
    )


async def play_full(cases: Sequence[TeamScenario], services: GovernanceServices, stream: str) -> None:
    """Governed episodes to their end, every proposal approved."""
    reviewer = SimulatedReviewer(lambda request, option: 1.0)
    worlds = partial(SimulatedOutcomes, shock_share=0.35)
    seating = replace(make_seating(), stream=stream)
    episodes = await play_governed(
        cases, services, seating, reviewer, worlds, rounds=1, concurrency=IN_FLIGHT
    )
    failed = [episode for episode in episodes if episode.error is not None]
    if failed:
        raise RuntimeError(f"{len(failed)} episodes failed, the first: {failed[0].error}")


async def play_assess(cases: Sequence[TeamScenario], stream: str) -> None:
    """Reports, decision and votes."""
    seating = make_seating()
    await play_episodes(
        cases,
        seating.team,
        seating.engine,
        seating.chat,
        seating.sampling,
        concurrency=IN_FLIGHT,
        stream=stream,
    )


async def play_and_read(num_episodes: int, protocol: str, path: Path) -> list[Reading]:
    """Play, and read memory and descriptors after every call."""
    readings: list[Reading] = []
    async with open_services(path, key=b"k" * 32) as services:
        for start, size in _cut(num_episodes, max(1, num_episodes // NUM_CALLS)):
            cases, began = draw_cases(size), time.monotonic()
            if protocol == "full":
                await play_full(cases, services, f"growth{start}")
            else:
                await play_assess(cases, f"growth{start}")
            seconds = time.monotonic() - began
            gc.collect()
            readings.append(read_process(start + size, seconds))
    return readings


def _cut(total: int, size: int) -> Iterator[tuple[int, int]]:
    yield from ((start, min(size, total - start)) for start in range(0, total, size))


def read_process(episodes: int, seconds: float) -> Reading:
    """Resident memory and open descriptors of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Reading(
        episodes=episodes,
        memory_mib=pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
        descriptors=len(os.listdir("/proc/self/fd")),
        seconds=seconds,
    )


def measure_growth(readings: Sequence[Reading]) -> tuple[float, int]:
    """(MiB, descriptors) by which the last quarter of the calls is over the second one, in the median.

    Raises:
        ValueError: fewer than 8 readings.
    """
    if len(readings) < 8:
        raise ValueError(f"growth needs at least 8 calls, got {len(readings)}")
    quarter = len(readings) // 4
    early, late = readings[quarter : 2 * quarter], readings[-quarter:]
    memory = [statistics.median(one.memory_mib for one in part) for part in (early, late)]
    return memory[1] - memory[0], max(r.descriptors for r in late) - max(r.descriptors for r in early)


def main() -> int:
    parser = argparse.ArgumentParser(description="Memory and descriptors over thousands of episodes.")
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--protocol", choices=("full", "assess"), default="full")
    parser.add_argument("--tolerance", type=float, default=TOLERANCE_MIB, help="MiB that count as flat")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        readings = asyncio.run(play_and_read(given.episodes, given.protocol, Path(folder) / "growth.db"))
        size_mib = sum(file.stat().st_size for file in Path(folder).iterdir()) / 2**20
    print("| episodes | resident MiB | descriptors | s per call |")
    print("|---|---|---|---|")
    for one in readings:
        print(f"| {one.episodes} | {one.memory_mib:.1f} | {one.descriptors} | {one.seconds:.1f} |")
    memory, descriptors = measure_growth(readings)
    is_flat = memory <= given.tolerance and descriptors <= 0
    verdict = "flat" if is_flat else "GROWS"
    print(f"{verdict}: {memory:+.1f} MiB, {descriptors:+d} descriptors; store {size_mib:.0f} MiB")
    return 0 if is_flat else 1


if __name__ == "__main__":
    sys.exit(main())

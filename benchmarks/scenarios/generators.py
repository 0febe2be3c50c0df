"""Speed, repeats and overlap of the scenario generators, beside reasoning-gym in the same run.

    python -m benchmarks.scenarios.generators --peer runs/peer/bin/python \\
        --write TABLE.md

Without --peer only this project is measured. The peer has an environment of its own, no part of the project:

    python3 -m venv runs/peer && runs/peer/bin/pip install reasoning-gym

Rates are per second of CPU time in one process, so that other load changes them little; sides take turns.
"""

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any

from emads.cli.options import parse_difficulties
from scenarios.base import SPLITS
from scenarios.registry import FAMILIES
from training.data.demonstrations import difficulty_of
from training.data.folders.near_duplicates import RepeatFilter, compute_fingerprint
from training.data.folders.rows import TEAM, describe_case, generate_case, require_certificate

SIDE = Path(__file__).with_name("reasoning_gym_rates.py")
ALL_FAMILIES = (*FAMILIES, TEAM)
SEEDS = (0, 1)
MARK = "<!-- RESULTS: python -m benchmarks.scenarios.generators --write writes what follows -->"
PEER_SECONDS = 20.0  # of CPU time per data set and seed, at most, for the overlap
Table = list[list[str]]


def measure_rate(make: Callable[[int], object], seconds: float) -> float:
    """Calls per second of CPU time; what is made once per process is left out."""
    make(0)
    start, count = time.process_time(), 0
    while time.process_time() - start < seconds:
        count += 1
        make(count)
    return count / (time.process_time() - start)


def measure_own_rates(
    difficulties: Sequence[int], seconds: float
) -> dict[tuple[str, int], tuple[float, float]]:
    """(family, difficulty) -> scenarios per second: generated; certified, compared, with demonstration."""
    rates = {}
    for family, difficulty in product(ALL_FAMILIES, difficulties):

        def generate(index: int, family: str = family, difficulty: int = difficulty) -> Any:
            return generate_case(family, "train", 0, index, difficulty)

        def write(index: int, generate: Callable[[int], Any] = generate) -> None:
            case = generate(index)
            require_certificate(case)
            describe_case(case)
            compute_fingerprint(case)

        rates[family, difficulty] = measure_rate(generate, seconds), measure_rate(write, seconds)
    return rates


def ask_peer(python: str, *arguments: object) -> dict[str, Any]:
    command = [python, str(SIDE), *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def tabulate_rates(
    arguments: argparse.Namespace, difficulties: Sequence[int]
) -> tuple[Table, Table, list[str]]:
    """Medians over the repeats of both sides, and the ratio of their geometric means."""
    own: dict[tuple[str, int], list[tuple[float, float]]] = {}
    peer: dict[str, list[float]] = {}
    ratios = []
    for _ in range(arguments.repeats):
        rates = measure_own_rates(difficulties, arguments.seconds)
        for place, pair in rates.items():
            own.setdefault(place, []).append(pair)
        if arguments.peer:
            answer = ask_peer(arguments.peer, "rates", arguments.seconds)
            answer.pop("version")
            for name, rate in answer.items():
                peer.setdefault(name, []).append(rate)
            low = [pair for (_, difficulty), pair in rates.items() if difficulty <= 2]
            theirs = math.exp(statistics.fmean(math.log(rate) for rate in answer.values()))
            means = [math.exp(statistics.fmean(math.log(pair[i]) for pair in low)) for i in (0, 1)]
            ratios.append((means[0] / theirs, means[1] / theirs))
    own_table = [
        [family, str(difficulty), *(f"{statistics.median(pair[i] for pair in pairs):,.0f}" for i in (0, 1))]
        for (family, difficulty), pairs in own.items()
    ]
    peer_table = [[name, f"{statistics.median(rates):,.0f}"] for name, rates in peer.items()]
    lines = []
    if ratios:
        generated, written = (statistics.median(pair[i] for pair in ratios) for i in (0, 1))
        lines = [
            "Ratio of the geometric means, this project at difficulty 1 and 2 to the peer's data sets,",
            f"both in one run, median of {arguments.repeats}: {generated:.2f} generated, {written:.2f} with"
            " certificate, comparison and demonstration.",
        ]
    return own_table, peer_table, lines


def measure_own_overlap(family: str, count: int) -> list[str]:
    """A table row: what the six streams of a family (splits x seeds) share, and repeat within themselves."""
    streams: list[set[bytes]] = []
    num_near = 0
    for split, seed in product(SPLITS, SEEDS):

        def load(index: int, split: Any = split, seed: int = seed) -> Any:
            return generate_case(family, split, seed, index, difficulty_of(index, (1, 2)))

        cases = range(count)
        streams.append(set())
        repeats = RepeatFilter(load)
        for index in cases:
            fingerprint = compute_fingerprint(load(index))
            streams[-1].add(fingerprint.digest)
            if (split, seed) == ("train", 0):
                num_near += repeats.find_repeat(index, fingerprint) == "near"
    return [
        family,
        f"{count * len(streams):,}",
        str(sum(len(a & b) for a, b in combinations(streams, 2))),
        str(sum(count - len(stream) for stream in streams)),
        str(num_near),
    ]


def tabulate_peer_overlap(python: str, count: int) -> tuple[str, Table]:
    answer = ask_peer(python, "overlap", count, PEER_SECONDS)
    version: str = answer.pop("version")
    shares = ("shared", "shared_far", "repeats")
    rows = [
        [name, f"{found['count']:,}", *(f"{100 * found[share]:.2f} %" for share in shares)]
        for name, found in answer.items()
    ]
    return version, rows


def format_table(titles: Sequence[str], rows: Table) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in (titles, ["---"] * len(titles), *rows))


def describe_machine() -> str:
    names = [
        line.split(":")[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return (
        f"{len(os.sched_getaffinity(0))} cores ({names[0] if names else platform.machine()}),"
        f" Python {platform.python_version()}, load {os.getloadavg()[0]:.1f} when it started"
    )


def measure(arguments: argparse.Namespace) -> Iterator[str]:
    """The parts of the page, each as soon as it is measured."""
    difficulties = parse_difficulties(arguments.difficulties)
    yield f"Measured on {describe_machine()}.\n\n### Speed\n\n"
    own, peer, ratio = tabulate_rates(arguments, difficulties)
    yield format_table(("family", "difficulty", "generated per s", "with certificate and demonstration"), own)
    if peer:
        yield "\n" + format_table(("reasoning-gym", "generated per s"), peer)
        yield "\n" + "\n".join(ratio) + "\n"
    yield (
        f"\n### Overlap\n\nSix streams per family: train, validation and test of seeds {SEEDS[0]} and"
        f" {SEEDS[1]}, {arguments.count:,} scenarios each, difficulties 1 and 2.\n\n"
    )
    titles = ["family", "scenarios", "shared by two streams", "repeated within a stream"]
    titles += ["near-duplicates in train of seed 0"]
    rows = [measure_own_overlap(family, arguments.count) for family in ALL_FAMILIES]
    yield format_table(titles, rows)
    if arguments.peer:
        version, rows = tabulate_peer_overlap(arguments.peer, arguments.count)
        yield (
            f"\nreasoning-gym {version}, default configs; per seed as many items as above, or as"
            f" {PEER_SECONDS:.0f} s of CPU time make.\n\n"
        )
        titles = ["reasoning-gym", "items per seed", "of test seed 2 in training seed 1"]
        titles += ["of a far seed in training seed 1", "repeated within a seed"]
        yield format_table(titles, rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Speed and overlap of the generators, and of reasoning-gym's."
    )
    parser.add_argument("--peer", default="", help="Python interpreter that has reasoning-gym")
    parser.add_argument("--count", type=int, default=20_000, help="scenarios per family, split and seed")
    parser.add_argument("--difficulties", default="1-3,5,8", help="of the speed table, as 1,2 or 1-3")
    parser.add_argument("--seconds", type=float, default=1.0, help="of CPU time per rate")
    parser.add_argument("--repeats", type=int, default=3, help="turns of each side; medians are shown")
    parser.add_argument("--write", type=Path, help="page whose part after its RESULTS mark is replaced")
    arguments = parser.parse_args()
    parts = []
    for part in measure(arguments):
        print(part, end="", flush=True)
        parts.append(part)
    if arguments.write:
        page = arguments.write.read_text().partition(MARK)[0]
        arguments.write.write_text(f"{page}{MARK}\n\n{''.join(parts)}")


if __name__ == "__main__":
    main()

"""Rewards of blind, heuristic and oracle players of each family from difficulty 1 to 10.

    python -m benchmarks.scenarios.difficulty --count 500 --processes 2

Mean verified rewards on validation cases as Markdown tables; blind players learn from train cases. Ends with
status 1 where the heuristic rises from one level to the next by more than chance explains, where a blind
player earns more than its bound or than the heuristic, or where the oracle does not earn 1.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from math import sqrt
from multiprocessing import get_context
from statistics import fmean, variance

from emads.cli.choices import parse_difficulties
from evaluation.audit.case_sample import CaseSample
from evaluation.audit.probes.blind_players import blind_bound, collect_rewards
from evaluation.audit.registry import SUBJECTS
from scenarios.registry import FAMILIES

NAMES = (*FAMILIES, "team-value")
BLIND = ("random", "constant", "majority")
TITLES = {"constant": "best constant", "greedy": "heuristic", "honest": "honest heuristic"}
ROWS = (*BLIND, "greedy", "honest", "oracle")
SIGMAS = 1.96
Rewards = Mapping[str, Sequence[float]]  # by player


def measure(name: str, difficulty: int, count: int, constant_cases: int) -> dict[str, list[float]]:
    """Rewards by player at one level."""
    subject = SUBJECTS[name]
    book = CaseSample(subject, 0, constant_cases)
    rewards = collect_rewards(book, difficulty, count)
    cases = [subject.family.generate("validation", 0, index, difficulty) for index in range(count)]
    gold = [subject.family.verify(case, json.dumps(subject.family.solve(case))).reward for case in cases]
    return {player: values for player, values in rewards.items() if player in ROWS} | {"oracle": gold}


def standard_error(values: Sequence[float]) -> float:
    return sqrt(variance(values) / len(values))


def find_faults(name: str, by_level: Mapping[int, Rewards]) -> Iterator[str]:
    """What is not as it should be, one line each."""
    for (easier, before), (harder, after) in pairwise(by_level.items()):
        rise = fmean(after["greedy"]) - fmean(before["greedy"])
        error = SIGMAS * sqrt(standard_error(before["greedy"]) ** 2 + standard_error(after["greedy"]) ** 2)
        if rise > error:
            yield f"{name}: the heuristic rises by {rise:.3f} from {easier} to {harder}, beyond {error:.3f}"
    first = SUBJECTS[name].bounded_from
    for level, rewards in by_level.items():
        greedy, bound = fmean(rewards["greedy"]), blind_bound(level)
        if set(rewards["oracle"]) != {1.0}:
            yield f"{name}: the oracle earns {fmean(rewards['oracle'])} at {level}"
        for player in BLIND:
            mean = fmean(rewards[player])
            if mean >= greedy:
                yield f"{name}: {player} earns {mean:.3f} at {level}, the heuristic {greedy:.3f}"
            if first is not None and level >= first and bound is not None and mean > bound:
                yield f"{name}: {player} earns {mean:.3f} at {level}, bound {bound:.2f}"


def render_table(name: str, by_level: Mapping[int, Rewards]) -> str:
    """Rows are players, columns are levels."""
    players = [player for player in ROWS if player in next(iter(by_level.values()))]
    lines = [[name, *map(str, by_level)], ["---"] * (1 + len(by_level))]
    for player in players:
        means = [f"{fmean(rewards[player]):.2f}" for rewards in by_level.values()]
        lines.append([TITLES.get(player, player), *means])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Rewards of simple players by difficulty.")
    parser.add_argument("--count", type=int, default=500, help="cases per family and difficulty")
    parser.add_argument("--constant-cases", type=int, default=200, help="train cases of the blind players")
    parser.add_argument("--difficulties", default="1-10", help="as 1,2 or 1-3")
    parser.add_argument("--families", default=",".join(NAMES))
    parser.add_argument("--processes", type=int, default=1)
    arguments = parser.parse_args()
    levels = parse_difficulties(arguments.difficulties)
    names = arguments.families.split(",")
    faults: list[str] = []
    widest = 0.0
    with ProcessPoolExecutor(arguments.processes, mp_context=get_context("spawn")) as pool:
        found = {
            (name, level): pool.submit(measure, name, level, arguments.count, arguments.constant_cases)
            for name in names
            for level in levels
        }
        for name in names:
            by_level = {level: found[name, level].result() for level in levels}
            print(render_table(name, by_level), flush=True)
            faults += find_faults(name, by_level)
            widest = max(widest, *(standard_error(v) for cell in by_level.values() for v in cell.values()))
    print(f"{arguments.count} cases per cell; 95 % intervals of at most +-{SIGMAS * widest:.3f}")
    print("\n".join(faults) or "no faults")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()

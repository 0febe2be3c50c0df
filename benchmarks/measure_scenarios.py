"""Generation rate and baseline scores by family and difficulty, as two Markdown tables.

    python -m benchmarks.measure_scenarios --count 300 --difficulties 1-3,5,8

Rates are scenarios per second of CPU time in one process, so that other load does not change them.
Scores are mean verified rewards on the test split; the oracle's 1 is checked, not printed.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from emads.options import parse_difficulties
from evaluation.assess import score_role_baselines, score_team_baselines
from evaluation.scores import RoleScores, TeamScores
from scenarios import team
from scenarios.registry import FAMILIES
from simulator.reward import TeamRewardWeights

T = TypeVar("T")
ROLE_STAGES = ("random", "constant", "heuristic")
TEAM_STAGES = ("random", "greedy", "oracle_common", "oracle_best")


def generate_timed(generate: Callable[..., T], count: int, difficulty: int) -> tuple[list[T], float]:
    """`count` test scenarios, and how many were made per second (what is made once per process left out)."""
    generate("test", 0, count, difficulty)
    start = time.process_time()
    scenarios = [generate("test", 0, index, difficulty) for index in range(count)]
    return scenarios, count / (time.process_time() - start)


def take_means(scores: Iterable[RoleScores | TeamScores], stages: Sequence[str]) -> list[float]:
    """Mean reward of each stage; the oracle must have exactly 1."""
    means = {one.stage: statistics.fmean(one.sampled) for one in scores}
    assert means["oracle"] == 1.0
    return [means[stage] for stage in stages]


def print_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A Markdown table, each row as soon as it is measured."""
    print(f"| {' | '.join(titles)} |\n|{'---|' * len(titles)}")
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)


def measure_roles(count: int, difficulties: Sequence[int]) -> Iterable[list[str]]:
    for name, family in FAMILIES.items():
        for difficulty in difficulties:
            scenarios, rate = generate_timed(family.generate, count, difficulty)
            means = take_means(score_role_baselines(name, scenarios), ROLE_STAGES)
            yield [name, str(difficulty), f"{rate:,.0f}", *(f"{mean:.2f}" for mean in means)]


def measure_team(count: int, difficulties: Sequence[int]) -> Iterable[list[str]]:
    for difficulty in difficulties:
        scenarios, rate = generate_timed(team.generate, count, difficulty)
        means = take_means(score_team_baselines(scenarios, TeamRewardWeights()), TEAM_STAGES)
        yield ["team", str(difficulty), f"{rate:,.0f}", *(f"{mean:.2f}" for mean in means)]


def main() -> None:
    parser = argparse.ArgumentParser(description="Generation rates and baseline scores of all families.")
    parser.add_argument("--count", type=int, default=300, help="scenarios per family and difficulty")
    parser.add_argument("--difficulties", default="1-3,5,8", help="as 1,2 or 1-3")
    arguments = parser.parse_args()
    difficulties = parse_difficulties(arguments.difficulties)
    print_table(("family", "difficulty", "per s", *ROLE_STAGES), measure_roles(arguments.count, difficulties))
    print()
    print_table(
        ("family", "difficulty", "per s", "random", "first pick", "common practice", "best practice"),
        measure_team(arguments.count, difficulties),
    )


if __name__ == "__main__":
    main()

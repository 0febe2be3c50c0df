"""Hard limits and escalation by difficulty: how often they decide, and whether one public number tells it.

    python -m benchmarks.scenarios.limits --count 100 --seed 3

Training cases. First the share of a seat's questions whose best part is another one when its limit is left
out; then of the table's cases that can be run those whose best plan is another one without all limits, and of
all cases those in which escalating is right. Last the highest balanced accuracy with which a threshold on one
public number tells these cases, over all difficulties measured.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from emads.cli.options import parse_difficulties
from scenarios.company.domains import DOMAINS
from scenarios.company.knapsack import list_efficient, take_within
from scenarios.company.optimum import find_optimum
from scenarios.company.parts import read_question
from scenarios.registry import FAMILIES
from scenarios.team import TeamScenario, generate


def limit_decides(seat: str, seed: int, index: int, difficulty: int) -> bool:
    """Return whether the best part of a question is another one without the limit."""
    facts = FAMILIES[seat].generate("train", seed, index, difficulty).facts
    question = read_question(DOMAINS[seat], facts)
    return take_within(list_efficient(question.parts, keeping=False), question.amount) != question.best


def limits_decide(case: TeamScenario) -> bool:
    """Return whether the best plan of a case that can be run is another one without all limits."""
    parts = {
        seat: {
            option: tuple(part._replace(keeps_limit=True) for part in parts) for option, parts in own.items()
        }
        for seat, own in case.case.parts.items()
    }
    best, optimum = find_optimum(replace(case.case, parts=parts)), case.optimum
    assert best is not None
    assert optimum is not None
    return best.worth != optimum.worth


def find_best_threshold(values: Sequence[int], flags: Sequence[bool]) -> float:
    """The highest balanced accuracy with which a threshold on the values, from either side, tells the flags.

    Example: find_best_threshold([1, 2, 3], [True, False, False]) == 1.0
    """
    best = 0.5
    for threshold in set(values):
        told = [value >= threshold for value in values]
        hits = fmean(one for one, flag in zip(told, flags, strict=True) if flag)
        passed = fmean(not one for one, flag in zip(told, flags, strict=True) if not flag)
        accuracy = (hits + passed) / 2
        best = max(best, accuracy, 1 - accuracy)
    return best


def list_public_numbers(case: TeamScenario) -> Mapping[str, int]:
    """Numbers that everybody at the table reads."""
    bases = [option.base for option in case.case.options.values()]
    return {
        "budget": case.case.budget,
        "largest base value": max(bases),
        "least base value": min(bases),
        "spread of the base values": max(bases) - min(bases),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--count", type=int, default=100, help="questions of a seat, and cases, per difficulty"
    )
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--difficulties", default="3-10", help="as 3,5 or 3-10")
    options = parser.parse_args()
    levels = parse_difficulties(options.difficulties)
    print(f"| share of cases | {' | '.join(map(str, levels))} |")
    print("| --- " * (len(levels) + 1) + "|")
    for seat in DOMAINS:
        shares = [
            fmean(limit_decides(seat, options.seed, index, level) for index in range(options.count))
            for level in levels
        ]
        print(f"| limit of {seat} decides | {' | '.join(f'{share:.2f}' for share in shares)} |", flush=True)
    cases = [
        [generate("train", options.seed, index, level) for index in range(options.count)] for level in levels
    ]
    decided = [fmean(limits_decide(case) for case in own if case.optimum) for own in cases]
    escalated = [fmean(case.optimum is None for case in own) for own in cases]
    print(f"| limits decide at the table | {' | '.join(f'{share:.2f}' for share in decided)} |")
    print(f"| cases to escalate | {' | '.join(f'{share:.2f}' for share in escalated)} |")
    pooled = [case for own in cases for case in own]
    for name in list_public_numbers(pooled[0]):
        values = [list_public_numbers(case)[name] for case in pooled]
        accuracy = find_best_threshold(values, [case.optimum is None for case in pooled])
        print(f"{name}: balanced accuracy {accuracy:.2f}")


if __name__ == "__main__":
    main()

"""Search the numbers of the habit `rising`: by the word for a step's return, the tenths an offer may reach.

Coordinate ascent over tenths of the budget, on training cases of difficulties 1 and 2: the numbers with the
highest mean V when every seat follows them. Run it as `python -m benchmarks.joint.rising_tenths`; three
minutes on one core.
"""

import argparse
from collections.abc import Mapping
from statistics import fmean
from unittest import mock

from evaluation.scoring.baselines import check_reports
from scenarios.team import experts
from scenarios.team.experts import RISING_TENTHS, best_decision, best_report
from scenarios.team.scenario import TeamScenario, generate
from scenarios.team.value import decision_value

FIRST_INDEX = 5_000_000  # far from the training scenarios of every stage


def mean_value(cases: list[TeamScenario], tenths: Mapping[str, int]) -> float:
    """Mean V where every seat follows these numbers and the offers are funded exactly."""
    with mock.patch.object(experts, "RISING_TENTHS", tenths):
        tables = [check_reports(c, {s: best_report(c, s, "rising") for s in c.seats}) for c in cases]
    return fmean(
        decision_value(case, table, best_decision(case.public, table, "exact"))
        for case, table in zip(cases, tables, strict=True)
    )


def main() -> None:
    """Print every improvement, and whether the numbers of `scenarios.team.experts` are where it ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000)
    number = parser.parse_args().cases
    cases = [generate("train", 0, FIRST_INDEX + index, 1 + index % 2) for index in range(number)]
    tenths = dict.fromkeys(RISING_TENTHS, 4)
    best, improved = mean_value(cases, tenths), True
    while improved:
        improved = False
        for word in tenths:
            for change in (-1, 1):
                other = {**tenths, word: tenths[word] + change}
                value = mean_value(cases, other)
                if value > best:
                    best, tenths, improved = value, other, True
                    print(f"V {best:.4f} {tenths}", flush=True)
    print(f"used: V {mean_value(cases, RISING_TENTHS):.4f} {dict(RISING_TENTHS)}")


if __name__ == "__main__":
    main()

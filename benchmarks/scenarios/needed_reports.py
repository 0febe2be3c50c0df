"""Value of team decisions without one specialist's report, by difficulty.

    python -m benchmarks.scenarios.needed_reports --count 300 --difficulties 1-3,5,8,10

Ends with status 1 where a role's report costs a chair less than 0.1 on the mean over difficulties.
"""

import argparse
import sys
from statistics import fmean

from emads.cli.choices import parse_difficulties
from evaluation.probes.needed_reports import LEAST_LOSS, NOBODY, mean_loss, measure
from roles.team import SPECIALISTS


def main() -> None:
    parser = argparse.ArgumentParser(description="Value of the team with each report removed.")
    parser.add_argument("--count", type=int, default=300, help="cases per difficulty")
    parser.add_argument("--difficulties", default="1-3,5,8,10", help="as 1,2 or 1-3")
    arguments = parser.parse_args()
    titles = ["difficulty", "chair", "all report", *(f"without {role}" for role in SPECIALISTS), "mean loss"]
    print(f"| {' | '.join(titles)} |\n|{'---|' * len(titles)}", flush=True)
    losses: dict[tuple[str, str], list[float]] = {}
    for difficulty, chair, found in measure(arguments.count, parse_difficulties(arguments.difficulties)):
        for role in SPECIALISTS:
            losses.setdefault((chair, role), []).append(found[NOBODY] - found[role])
        cells = [str(difficulty), chair, *(f"{value:.2f}" for value in found.values())]
        print(f"| {' | '.join(cells)} | {mean_loss(found):.2f} |", flush=True)
    means = {place: fmean(values) for place, values in losses.items()}
    print("\nmean loss: " + ", ".join(f"{chair} {role} {loss:.2f}" for (chair, role), loss in means.items()))
    sys.exit(min(means.values()) < LEAST_LOSS)


if __name__ == "__main__":
    main()

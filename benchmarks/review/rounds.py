"""Review rate and missed errors over rounds of review, for every way of choosing cases; scripted players.

    python -m benchmarks.review.rounds --seeds 5

Prints one table per way. `needed` is the smallest share of cases to review, in the way's own order, that
leaves errors in at most 5 % of the cases; it is known only in hindsight. `escalated` are the cases that
expected cost sends to people, chosen before anything is known of them.
"""

import argparse
import math

from benchmarks.review.selection import WAYS, RoundResult, RoundSettings, play_rounds

COLUMNS = ("value", "errors", "missed", "needed", "escalated", "escalated_missed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seeds", type=int, default=3, help="how many; figures are means over them")
    parser.add_argument("--cases", type=int, default=60, help="per round")
    given = parser.parse_args()
    settings = RoundSettings(cases_per_round=given.cases)
    print(f"{given.seeds} seeds, {settings}")
    for way in WAYS:
        runs = [play_rounds(way, settings, seed=seed) for seed in range(given.seeds)]
        print(f"\n{way}\nround  " + "  ".join(f"{name:>16}" for name in COLUMNS))
        for number, results in enumerate(zip(*runs, strict=True), 1):
            print(f"{number:>5}  " + "  ".join(f"{_mean(results, name):>16.3f}" for name in COLUMNS))


def _mean(results: tuple[RoundResult, ...], name: str) -> float:
    return math.fsum(getattr(one, name) for one in results) / len(results)


if __name__ == "__main__":
    main()

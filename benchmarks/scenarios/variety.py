"""Sameness of the texts of test cases and training cases, and rules of thumb in sectors that are held out.

    python -m benchmarks.scenarios.variety --count 150

Alike: 8-grams, numbers masked, that a test brief and the nearest training brief have in common, as a share of
all that either has, in the mean.
"""

import argparse
import random
import re
from statistics import fmean

from scenarios.base import Family, Scenario, Split
from scenarios.registry import FAMILIES
from scenarios.tasks.registry import JOBS, TASK_FAMILIES
from scenarios.team import PlanGame
from scenarios.team import generate as generate_team

SIZE = 8  # words of an n-gram
LEVELS = (1, 2, 3, 5, 8)
Grams = frozenset[tuple[str, ...]]


def list_grams(text: str, *, masked: bool) -> Grams:
    """The n-grams of a brief, lower case; masked: every number is the same."""
    words = re.findall(r"[a-z]+|[\d.]+|\S", text.lower())
    if masked:
        words = ["0" if word[0].isdigit() else word for word in words]
    return frozenset(zip(*(words[place:] for place in range(SIZE)), strict=False))


def draw(family: Family, split: Split, count: int) -> list[Scenario]:
    return [family.generate(split, 0, index, LEVELS[index % len(LEVELS)]) for index in range(count)]


def draw_briefs(name: str, split: Split, count: int) -> list[str]:
    """Briefs of a family; `team` is what the COO's seat reads at the table."""
    if name == "team":
        cases = [generate_team(split, 0, index, LEVELS[index % len(LEVELS)]) for index in range(count)]
        return [PlanGame(case).write_report_brief("coo") for case in cases]
    return [case.brief for case in draw(find_family(name), split, count)]


def find_family(name: str) -> Family:
    return FAMILIES[name] if name in FAMILIES else TASK_FAMILIES[name]


def measure_overlap(train: list[str], test: list[str]) -> tuple[float, float]:
    """Share of test n-grams found in training briefs; likeness of a test brief to the nearest one there."""
    known = frozenset[tuple[str, ...]]().union(*(list_grams(text, masked=False) for text in train))
    shares = [len(grams & known) / len(grams) for grams in (list_grams(text, masked=False) for text in test)]
    masked = [list_grams(text, masked=True) for text in train]
    alike = []
    for text in test:
        grams = list_grams(text, masked=True)
        alike.append(max(len(grams & other) / len(grams | other) for other in masked))
    return fmean(shares), fmean(alike)


def score_greedy(family: Family, split: Split, count: int) -> float:
    """Mean reward of the family's rule of thumb."""
    play = family.baselines["greedy"]
    cases = draw(family, split, count)
    return fmean(family.verify(case, play(case, random.Random(case.index))).reward for case in cases)


def main() -> None:
    parser = argparse.ArgumentParser(description="Variety of the cases' texts.")
    parser.add_argument("--count", type=int, default=150, help="test cases; of training cases twice as many")
    parser.add_argument("--no-new-sectors", action="store_true", help="leave out the split test-new-sectors")
    arguments = parser.parse_args()
    splits: list[Split] = ["test"] if arguments.no_new_sectors else ["test", "test-new-sectors"]
    print(f"| family | {' | '.join(f'8-grams, alike, rule of thumb: {split}' for split in splits)} |")
    print("|---" * (len(splits) + 1) + "|")
    for name in (*FAMILIES, *JOBS, "team"):
        train = draw_briefs(name, "train", 2 * arguments.count)
        cells = []
        for split in splits:
            shares, alike = measure_overlap(train, draw_briefs(name, split, arguments.count))
            rule = (
                "" if name == "team" else f", {score_greedy(find_family(name), split, arguments.count):.2f}"
            )
            cells.append(f"{shares:.2f}, {alike:.2f}{rule}")
        print(f"| `{name}` | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

"""Ways to choose the cases that people review.

`random` for comparison. `uncertainty`: the least sure first. `consistency`: the least sure first where
uncertainty has told verified errors, else by how often the case's group erred. `gap`: the largest difference
between the predicted qualities of two plays first.

Uncertainty alone does not beat chance for verifiable rewards; how far it agrees with verified outcomes is
measured by the point-biserial correlation (arXiv:2601.22595). There it chooses training prompts by many
answers to each; here it is measured per group of cases that were verified before.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Way = Literal["random", "uncertainty", "consistency", "gap"]
WAYS: tuple[Way, ...] = get_args(Way)
PRIOR = 2.0  # verified cases that a group's figures are mixed with, at the overall figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A case that may be reviewed, as it is known before.

    Example: Candidate(key="team/train/0/7/2", group="3 options", uncertainty=0.4, qualities=(61.0, 55.0))
    """

    key: str
    group: str  # cases that are alike in what everybody sees
    uncertainty: float  # 0 to 1: 1 minus the margin between the two most frequent decisions
    qualities: tuple[float, ...]  # as predicted, of the plays of the case; any unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """A case whose outcome is known. Example: Verified(group="3 options", uncertainty=0.4, is_error=True)"""

    group: str
    uncertainty: float
    is_error: bool


def rank_candidates(
    way: Way, candidates: Sequence[Candidate], history: Sequence[Verified], *, rng: random.Random
) -> list[Candidate]:
    """Return the candidates, those that people should see first at the front; ties in random order."""
    shuffled = rng.sample(candidates, len(candidates))
    if way == "random":
        return shuffled
    if way == "uncertainty":
        return sorted(shuffled, key=lambda one: -one.uncertainty)
    if way == "gap":
        return sorted(shuffled, key=lambda one: -measure_gap(one))
    groups = measure_groups(history)
    overall = groups[""]
    return sorted(shuffled, key=lambda one: -_expect_error(one, groups.get(one.group, overall)))


def measure_gap(candidate: Candidate) -> float:
    """Return the largest difference between two plays' predicted qualities; 0 with fewer than two."""
    return max(candidate.qualities, default=0.0) - min(candidate.qualities, default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFigures:
    """Counts over the verified cases of a group.

    Example: GroupFigures(error_rate=0.2, consistency=0.6)
    """

    error_rate: float
    consistency: float  # point-biserial correlation of uncertainty with error, at least 0


def measure_groups(history: Sequence[Verified]) -> Mapping[str, GroupFigures]:
    """Return the figures by group, each mixed with those of all cases, which stand under ""."""
    everything = _measure(history, None)
    found = {"": everything}
    for group in dict.fromkeys(one.group for one in history):
        found[group] = _measure([one for one in history if one.group == group], everything)
    return found


def correlate(pairs: Sequence[tuple[float, bool]]) -> float:
    """Return the point-biserial correlation of a figure with a yes/no; 0 where either does not vary.

    Examples:
        >>> round(correlate([(0.0, False), (1.0, True), (0.0, False), (1.0, True)]), 3)
        1.0
    """
    num = len(pairs)
    if num < 2:
        return 0.0
    mean = math.fsum(figure for figure, _ in pairs) / num
    share = sum(is_yes for _, is_yes in pairs) / num
    spread = math.sqrt(math.fsum((figure - mean) ** 2 for figure, _ in pairs) / num)
    if not 0 < share < 1 or spread < 1e-12:
        return 0.0
    of_yes = math.fsum(figure for figure, is_yes in pairs if is_yes) / (share * num)
    of_no = math.fsum(figure for figure, is_yes in pairs if not is_yes) / ((1 - share) * num)
    return (of_yes - of_no) / spread * math.sqrt(share * (1 - share))


def _measure(cases: Sequence[Verified], everything: GroupFigures | None) -> GroupFigures:
    known = everything or GroupFigures(error_rate=0.5, consistency=0.0)
    num_errors, consistency = (
        sum(one.is_error for one in cases),
        max(0.0, correlate([(one.uncertainty, one.is_error) for one in cases])),
    )
    weight = len(cases) / (len(cases) + PRIOR)
    return GroupFigures(
        error_rate=(num_errors + PRIOR * known.error_rate) / (len(cases) + PRIOR),
        consistency=weight * consistency + (1 - weight) * known.consistency,
    )


def _expect_error(candidate: Candidate, figures: GroupFigures) -> float:
    """Return how likely an error is: by uncertainty as far as that has told errors, else by the group."""
    return figures.consistency * candidate.uncertainty + (1 - figures.consistency) * figures.error_rate

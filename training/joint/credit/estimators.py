"""Advantage estimators: scores that are compared with each other in, advantages out. One function each.

All take one role's groups of a step: for every group the scores of its members and the score of a greedy
rollout (only `remax` reads that). A group whose members cannot be told apart gets exact zeros. `total` adds
up numbers over all processes of a run, for what is compared with a whole batch.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from training.joint.records import Total

LEAST_SPREAD = 1e-12  # of a group's scores; less is the rounding of their sums
LEAST_STD = 0.05  # of rewards in about [-0.3, 1]: dividing by less would blow noise up
STD_EPSILON = 1e-4  # TRL's, so that the numbers are TRL's


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreGroup:
    """Scores that are compared with each other.

    Example: ScoreGroup(scores=(0.8, 0.2), greedy=0.6)
    """

    scores: tuple[float, ...]  # 2 or more
    greedy: float | None = None  # of the same scenario played at temperature 0; None where it was not played


Advantages = list[list[float]]  # one list per group, aligned with its scores
Estimator = Callable[[Sequence[ScoreGroup], Total], Advantages]


def centre(scores: Sequence[float]) -> list[float]:
    """Scores minus their mean, not divided by a standard deviation; exactly zero where all are equal.

    Raises:
        ValueError: fewer than two scores.
    """
    if len(scores) < 2:
        raise ValueError(f"a group needs at least 2 rewards to compare, got {len(scores)}")
    if max(scores) - min(scores) < LEAST_SPREAD:
        return [0.0] * len(scores)
    mean = statistics.fmean(scores)
    return [score - mean for score in scores]


def dr_grpo(groups: Sequence[ScoreGroup], total: Total = list) -> Advantages:
    """Score minus the group's mean. Source: arXiv:2503.20783."""
    return [centre(group.scores) for group in groups]


def grpo(groups: Sequence[ScoreGroup], total: Total = list) -> Advantages:
    """Score minus the group's mean, over its sample standard deviation (LEAST_STD at least).

    Source: arXiv:2402.03300. The floor is ours: without it a group whose rewards differ by 0.001 moves the
    weights as far as one whose rewards differ by 1.
    """
    return [_scale(centre(group.scores), statistics.stdev(group.scores)) for group in groups]


def rloo(groups: Sequence[ScoreGroup], total: Total = list) -> Advantages:
    """Score minus the mean of the others: unbiased, n / (n - 1) times `dr_grpo`. Source: arXiv:2402.14740."""
    return [
        [value * len(group.scores) / (len(group.scores) - 1) for value in centre(group.scores)]
        for group in groups
    ]


def reinforce_pp(groups: Sequence[ScoreGroup], total: Total = list) -> Advantages:
    """Centred per group, then divided by the standard deviation over the whole batch (LEAST_STD at least).

    Source: REINFORCE++ with its group baseline (arXiv:2501.03262). Groups without a difference stay out of
    the standard deviation as they stay out of the loss.
    """
    return normalise_role(dr_grpo(groups), total)


def remax(groups: Sequence[ScoreGroup], total: Total = list) -> Advantages:
    """Score minus that of the greedy rollout; differences of rounding size are zero.

    Source: arXiv:2310.10505.

    Raises:
        ValueError: a group has no greedy score.
    """
    advantages = []
    for group in groups:
        if group.greedy is None:
            raise ValueError("remax needs the score of a greedy rollout")
        gaps = [score - group.greedy for score in group.scores]
        advantages.append([gap if abs(gap) >= LEAST_SPREAD else 0.0 for gap in gaps])
    return advantages


def gae(groups: Sequence[ScoreGroup], total: Total = list) -> Advantages:
    """The scores themselves: rewards, of which value heads make token advantages
    (training/joint/credit/critic.py)."""
    return [list(group.scores) for group in groups]


ESTIMATORS: Mapping[str, Estimator] = {
    "dr_grpo": dr_grpo,
    "grpo": grpo,
    "rloo": rloo,
    "reinforce_pp": reinforce_pp,
    "remax": remax,
    "gae": gae,
}


def find_most_different(scores: Sequence[float], count: int) -> list[int]:
    """Places of the `count` scores with the greatest variance: some of the lowest and some of the highest.

    Source: max-variance down-sampling (PODS), arXiv:2504.13818.
    """
    order = sorted(range(len(scores)), key=lambda place: scores[place])
    choices = [order[:low] + order[len(order) - (count - low) :] for low in range(count + 1)]
    return max(choices, key=lambda places: statistics.pvariance([scores[place] for place in places]))


def compare_most_different(estimator: Estimator, count: int) -> Estimator:
    """The estimator on the `count` most different scores of every group; the others get 0. 0: on all.

    No group is smaller. What is compared weighs as much as the whole group would.
    """

    def estimate(groups: Sequence[ScoreGroup], total: Total = list) -> Advantages:
        places = [sorted(find_most_different(group.scores, count)) for group in groups]
        chosen = [
            replace(group, scores=tuple(group.scores[place] for place in of_group))
            for group, of_group in zip(groups, places, strict=True)
        ]
        spread = []
        for group, of_group, found in zip(groups, places, estimator(chosen, total), strict=True):
            weight = len(group.scores) / count
            by_place = dict(zip(of_group, found, strict=True))
            spread.append([by_place.get(place, 0.0) * weight for place in range(len(group.scores))])
        return spread

    return estimate if count else estimator


def normalise_role(advantages: Advantages, total: Total = list) -> Advantages:
    """One role's advantages over their root mean square (LEAST_STD at least) in groups that have any."""
    live = [value for group in advantages if any(group) for value in group]
    squares, count = total([sum(value * value for value in live), float(len(live))])
    return [_scale(group, math.sqrt(squares / count) if count else 0.0) for group in advantages]


def _scale(values: Sequence[float], deviation: float) -> list[float]:
    return [value / (max(deviation, LEAST_STD) + STD_EPSILON) for value in values]

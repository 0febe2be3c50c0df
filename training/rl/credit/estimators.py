"""Advantage estimators: scores that are compared with each other in, advantages out. One function each.

All take one role's groups of a step: for every group the scores of its members. A group whose members cannot
be told apart gets exact zeros. `total` adds up numbers over all processes of a run, for what is compared with
a whole batch.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence

from training.rl.records import Total

LEAST_SPREAD = 1e-12  # of a group's scores; less is the rounding of their sums
LEAST_STD = 0.05  # of rewards in about [-0.3, 1]: dividing by less would blow noise up
STD_EPSILON = 1e-4  # TRL's, so that the numbers are TRL's


Scores = Sequence[float]  # 2 or more scores that are compared with each other
Advantages = list[list[float]]  # one list per group, aligned with its scores
Estimator = Callable[[Sequence[Scores], Total], Advantages]


def centre(scores: Scores) -> list[float]:
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


def dr_grpo(groups: Sequence[Scores], total: Total = list) -> Advantages:
    """Score minus the group's mean. Source: arXiv:2503.20783."""
    return [centre(group) for group in groups]


def grpo(groups: Sequence[Scores], total: Total = list) -> Advantages:
    """Score minus the group's mean, over its sample standard deviation (LEAST_STD at least).

    Source: arXiv:2402.03300. The floor is ours: without it a group whose rewards differ by 0.001 moves the
    weights as far as one whose rewards differ by 1.
    """
    return [_scale(centre(group), statistics.stdev(group)) for group in groups]


def rloo(groups: Sequence[Scores], total: Total = list) -> Advantages:
    """Score minus the mean of the others: unbiased, n / (n - 1) times `dr_grpo`. Source: arXiv:2402.14740."""
    return [[value * len(group) / (len(group) - 1) for value in centre(group)] for group in groups]


def reinforce_pp(groups: Sequence[Scores], total: Total = list) -> Advantages:
    """Centred per group, then divided by the standard deviation over the whole batch (LEAST_STD at least).

    Source: REINFORCE++ with its group baseline (arXiv:2501.03262). Groups without a difference stay out of
    the standard deviation as they stay out of the loss.
    """
    return normalise_role(dr_grpo(groups), total)


def gae(groups: Sequence[Scores], total: Total = list) -> Advantages:
    """The scores themselves: rewards, of which value heads make token advantages
    (training/rl/credit/critic.py)."""
    return [list(group) for group in groups]


ESTIMATORS: Mapping[str, Estimator] = {
    "dr_grpo": dr_grpo,
    "grpo": grpo,
    "rloo": rloo,
    "reinforce_pp": reinforce_pp,
    "gae": gae,
}


def find_most_different(scores: Scores, count: int) -> list[int]:
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

    def estimate(groups: Sequence[Scores], total: Total = list) -> Advantages:
        places = [sorted(find_most_different(group, count)) for group in groups]
        chosen = [
            [group[place] for place in of_group] for group, of_group in zip(groups, places, strict=True)
        ]
        spread = []
        for group, of_group, found in zip(groups, places, estimator(chosen, total), strict=True):
            weight = len(group) / count
            by_place = dict(zip(of_group, found, strict=True))
            spread.append([by_place.get(place, 0.0) * weight for place in range(len(group))])
        return spread

    return estimate if count else estimator


def normalise_role(advantages: Advantages, total: Total = list) -> Advantages:
    """One role's advantages over their root mean square (LEAST_STD at least) in groups that have any."""
    live = [value for group in advantages if any(group) for value in group]
    squares, count = total([sum(value * value for value in live), float(len(live))])
    return [_scale(group, math.sqrt(squares / count) if count else 0.0) for group in advantages]


def _scale(values: Sequence[float], deviation: float) -> list[float]:
    return [value / (max(deviation, LEAST_STD) + STD_EPSILON) for value in values]

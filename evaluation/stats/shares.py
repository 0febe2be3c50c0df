"""Shares: of a gap that was closed, and of cases that all of k tries solve."""

import math
from collections.abc import Sequence

import numpy as np

from evaluation.stats.intervals import CONFIDENCE, Interval, checked


def closed_share(
    before: Sequence[float],
    after: Sequence[float],
    best: Sequence[float],
    *,
    num_bootstrap: int = 2000,
    seed: int = 0,
) -> Interval | None:
    """Share of the gap between `before` and `best` that `after` closes, with its 95 % interval over cases.

    A ratio of mean gains on the same cases, resampled together; None where there is no gap to close.

    Raises:
        ValueError: empty, non-finite or unequal inputs.
    """
    start, end, top = checked(before, "before"), checked(after, "after"), checked(best, "best")
    if not start.size == end.size == top.size:
        raise ValueError(f"shares need equal lengths, got {start.size}, {end.size} and {top.size}")
    gained, gap = end - start, top - start
    if gap.mean() <= 0:
        return None
    places = np.random.default_rng(seed).integers(0, start.size, (num_bootstrap, start.size))
    gaps = gap[places].mean(axis=1)
    drawn = gained[places].mean(axis=1)[gaps > 0] / gaps[gaps > 0]
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(drawn, [tail, 100 - tail])
    return Interval(
        mean=float(gained.mean() / gap.mean()), low=float(low), high=float(high), n=int(start.size)
    )


def pass_all(successes: Sequence[Sequence[bool]], k: int) -> float:
    """pass^k: chance that k tries at a case, drawn from its own, are all successes; mean over cases.

    Raises:
        ValueError: no case, or a case with fewer tries than k.
    Source: tau-bench, arXiv:2406.12045.
    """
    if not successes or k < 1 or any(len(tries) < k for tries in successes):
        raise ValueError(f"pass^{k} needs cases of at least {k} tries each")
    chances = [math.comb(sum(tries), k) / math.comb(len(tries), k) for tries in successes]
    return sum(chances) / len(chances)

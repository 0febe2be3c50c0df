"""Effect sizes of paired changes, and McNemar's test.

Complements `evaluation/stats/intervals.py`; everything compares the same scenarios in the same order.
"""

from collections.abc import Sequence

import numpy as np

from evaluation.stats.intervals import CONFIDENCE, checked, differences


def mcnemar_p(after: Sequence[bool], before: Sequence[bool]) -> float:
    """Two-sided exact p of "as many cases turned right as turned wrong", from the cases that changed.

    Raises:
        ValueError: empty or unequal inputs.
    Source: McNemar 1947; the binomial test on the discordant pairs.
    """
    changes = differences([float(value) for value in after], [float(value) for value in before])
    num_gained, num_lost = int((changes > 0).sum()), int((changes < 0).sum())
    if num_gained + num_lost == 0:
        return 1.0
    from scipy import stats  # 1 s, which minutes and refusals need not wait for

    return float(stats.binomtest(num_gained, num_gained + num_lost, 0.5).pvalue)


def cohens_dz(after: Sequence[float], before: Sequence[float]) -> float | None:
    """Mean paired change over its standard deviation; None where the change is the same everywhere.

    By convention 0.2 is small, 0.5 medium, 0.8 large.

    Raises:
        ValueError: empty, non-finite or unequal inputs.
    Source: Cohen 1988, Statistical Power Analysis, section 2.3.5.
    """
    changes = differences(after, before)
    if changes.size < 2 or changes.min() == changes.max():
        return None
    return float(changes.mean() / changes.std(ddof=1))


def cliffs_delta(after: Sequence[float], before: Sequence[float]) -> float:
    """P(a score of `after` is the higher of two drawn at random) - P(it is the lower), in [-1, 1].

    Raises:
        ValueError: empty or non-finite inputs.
    Source: Cliff 1993, Dominance Statistics; by ranks, in n log n.
    """
    later, earlier = checked(after, "after"), checked(before, "before")
    ordered = np.sort(earlier)
    num_below = np.searchsorted(ordered, later, side="left").sum()
    num_above = (earlier.size - np.searchsorted(ordered, later, side="right")).sum()
    return float((int(num_below) - int(num_above)) / (later.size * earlier.size))


def t_factor(num_seeds: int) -> float:
    """Return the width of a 95 % t interval of this many seeds over that of a normal one (3 seeds: 2.195).

    Raises:
        ValueError: num_seeds < 2.
    """
    if num_seeds < 2:
        raise ValueError(f"the spread of {num_seeds} seed is unknown; two are needed")
    from scipy import stats  # 1 s, which minutes and refusals need not wait for

    tail = 0.5 * (1 + CONFIDENCE)
    return float(stats.t.ppf(tail, num_seeds - 1) / stats.norm.ppf(tail))

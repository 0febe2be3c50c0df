"""McNemar's test, detectable changes, shares, and agreement of reviewers (kappa).

Complements `evaluation/stats/intervals.py`; comparisons are of the same scenarios in the same order.
A change is claimed where its interval leaves 0 out, its corrected p is under 0.05 and it is no smaller than
the smallest change that is found in 80 % of such comparisons: smaller ones that turn up are mostly luck.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from evaluation.stats.intervals import CONFIDENCE, Interval, checked, differences


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


POWER = 0.8
LEVEL = 1 - CONFIDENCE


def detectable_change(after: Sequence[float], before: Sequence[float]) -> float | None:
    """Smallest true mean change that this many paired cases show with POWER, by the spread of the changes.

    None for a single case, which has no spread.

    Raises:
        ValueError: empty, non-finite or unequal inputs.
    Source: Cohen 1988, Statistical Power Analysis, section 2.4; normal approximation.
    """
    changes = differences(after, before)
    if changes.size < 2:
        return None
    from scipy import stats  # 1 s, which minutes and refusals need not wait for

    factor = stats.norm.ppf(1 - LEVEL / 2) + stats.norm.ppf(POWER)
    return float(factor * changes.std(ddof=1) / math.sqrt(changes.size))


def is_claimed(change: Mapping[str, Any]) -> bool:
    """Return whether a change may be claimed: by "mean", "low", "high", and "p", "detectable" if known."""
    p, detectable = change.get("p"), change.get("detectable")
    return (
        (change["low"] > 0 or change["high"] < 0)
        and (p is None or p < LEVEL)
        and (detectable is None or abs(change["mean"]) >= detectable)
    )


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


def cohens_kappa(pairs: Sequence[tuple[str, str]]) -> float | None:
    """Kappa of two reviewers who judged the same items; None without items, or where chance explains all.

    1 is full agreement, 0 what chance gives, below 0 less than that.
    Source: Cohen 1960, A Coefficient of Agreement for Nominal Scales.

    Examples:
        >>> cohens_kappa([("yes", "yes"), ("yes", "yes"), ("no", "no"), ("no", "yes")])
        0.5
    """
    if not pairs:
        return None
    firsts, seconds = (Counter(column) for column in zip(*pairs, strict=True))
    observed = sum(one == other for one, other in pairs) / len(pairs)
    expected = sum(firsts[name] * seconds[name] for name in firsts) / len(pairs) ** 2
    return None if expected == 1 else (observed - expected) / (1 - expected)


def fleiss_kappa(items: Sequence[Sequence[str]]) -> float | None:
    """Kappa of several reviewers, each item judged by two or more of them; None as in `cohens_kappa`.

    Items may have different numbers of judgements: an item's agreement is the share of its pairs of
    judgements that are equal, weighted by its number of judgements. With equal numbers this is Fleiss' own.
    Source: Fleiss 1971, Measuring nominal scale agreement among many raters.

    Examples:
        >>> round(fleiss_kappa([["a", "a", "a"], ["a", "b", "b"]]), 3)
        0.25
    """
    judged = [Counter(item) for item in items if len(item) > 1]
    num_judgements = sum(item.total() for item in judged)
    if not num_judgements:
        return None
    observed = sum(_share_of_pairs(item) * item.total() for item in judged) / num_judgements
    totals: Counter[str] = Counter()
    for item in judged:
        totals.update(item)
    expected = sum((count / num_judgements) ** 2 for count in totals.values())
    return None if expected == 1 else (observed - expected) / (1 - expected)


def _share_of_pairs(item: Counter[str]) -> float:
    """Return the share of pairs of judgements of one item that are equal."""
    num = item.total()
    return sum(count * (count - 1) for count in item.values()) / (num * (num - 1))

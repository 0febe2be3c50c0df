"""Intervals of one run or several seeds, tests, detectable changes, shares, and agreement of reviewers.

Resampling is scipy's; by hand are Holm's adjustment (`multipletests` of statsmodels takes 50 ms a call) and
the bootstrap of two levels, which scipy and statsmodels lack: what a further seed would give is uncertain by
training (between seeds) and by test cases (within). With few seeds the first part is the larger and the
harder one, so all gets the t distribution's width.
Scores are compared pairwise on the same scenarios, in the same order. Non-finite numbers are refused.
A change is claimed where its interval leaves 0 out, its corrected p is under 0.05 and it is no smaller than
the smallest change that is found in 80 % of such comparisons: smaller ones that turn up are mostly luck.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
NUM_BOOTSTRAP = 2000
MAX_CELLS = 2_000_000  # resampled values held in memory at once

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A mean with its 95 % interval; f"{interval:.2f}" is "0.62 [0.59, 0.65]".

    Example: Interval(mean=0.62, low=0.59, high=0.65, n=1000)
    """

    mean: float
    low: float
    high: float
    n: int  # scenarios behind the mean

    def __format__(self, form: str) -> str:
        """Return the mean and, in brackets, both ends, each in `form`."""
        return f"{self.mean:{form}} [{self.low:{form}}, {self.high:{form}}]" if form else str(self)


def mean_interval(values: Sequence[float], *, num_bootstrap: int = NUM_BOOTSTRAP, seed: int = 0) -> Interval:
    """Mean of `values` with its 95 % percentile bootstrap interval; equal values give no width.

    Raises:
        ValueError: no values, a non-finite value, or num_bootstrap < 2.
    Source: Efron and Tibshirani, An Introduction to the Bootstrap, chapter 13.
    """
    sample = checked(values, "values")
    if num_bootstrap < 2:
        raise ValueError(f"num_bootstrap must be >= 2, got {num_bootstrap}")
    if sample.min() == sample.max():
        constant = float(sample[0])  # exact: a sum of many equal floats need not be
        return Interval(mean=constant, low=constant, high=constant, n=sample.size)
    from scipy import stats  # 1 s, which minutes and refusals need not wait for

    found = stats.bootstrap(
        (sample,),
        np.mean,
        n_resamples=num_bootstrap,
        confidence_level=CONFIDENCE,
        method="percentile",
        batch=max(1, MAX_CELLS // sample.size),
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return Interval(mean=float(sample.mean()), low=float(found.low), high=float(found.high), n=sample.size)


def paired_interval(
    after: Sequence[float], before: Sequence[float], *, num_bootstrap: int = NUM_BOOTSTRAP, seed: int = 0
) -> Interval:
    """Mean of after - before on the same scenarios, with its 95 % bootstrap interval.

    Raises:
        ValueError: as mean_interval, or unequal lengths.
    """
    return mean_interval(
        [float(change) for change in differences(after, before)], num_bootstrap=num_bootstrap, seed=seed
    )


def paired_permutation_p(
    after: Sequence[float], before: Sequence[float], *, num_permutations: int = 5000, seed: int = 0
) -> float:
    """Two-sided p of "after and before are exchangeable", by flipping signs of the paired differences.

    Exact when all sign patterns fit in `num_permutations`, else (hits + 1) / (num_permutations + 1).

    Raises:
        ValueError: empty, non-finite or unequal inputs, or num_permutations < 1.
    """
    if num_permutations < 1:
        raise ValueError(f"num_permutations must be >= 1, got {num_permutations}")
    change = differences(after, before)
    changed = change[change != 0]  # a zero keeps its value under either sign
    if changed.size < 2:
        return 1.0
    from scipy import stats  # 1 s, which minutes and refusals need not wait for

    batch = max(1, MAX_CELLS // changed.size)
    if changed.size < 63 and 2**changed.size <= num_permutations:
        found = stats.permutation_test(
            (changed, np.zeros_like(changed)),
            lambda later, earlier, axis: np.abs((later - earlier).sum(axis=axis)),
            permutation_type="samples",
            vectorized=True,
            n_resamples=num_permutations,
            batch=batch,
            alternative="greater",
        )
        return float(found.pvalue)
    rng = np.random.default_rng(seed)  # signs drawn here: permutation_test needs 12 times as long to permute
    sampled = stats.monte_carlo_test(
        changed,
        lambda size: changed * (1 - 2 * rng.integers(0, 2, size, dtype=np.int8)),
        lambda flipped, axis: np.abs(flipped.sum(axis=axis)),
        vectorized=True,
        n_resamples=num_permutations,
        batch=batch,
        alternative="greater",
    )
    return float(sampled.pvalue)


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Holm's step-down adjustment of a family of tests, by name; controls the family-wise error rate.

    Raises:
        ValueError: a p outside [0, 1].
    Source: Holm 1979, A Simple Sequentially Rejective Multiple Test Procedure.
    """
    for name, p in p_values.items():
        if not 0 <= p <= 1:
            raise ValueError(f"p of {name!r} must be in [0, 1], got {p}")
    adjusted: dict[str, float] = {}
    largest = 0.0
    for rank, name in enumerate(sorted(p_values, key=lambda key: p_values[key])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[name]))
        adjusted[name] = largest
    return {name: adjusted[name] for name in p_values}


def checked(values: Sequence[float], name: str) -> Floats:
    """Return the values as an array.

    Raises:
        ValueError: none, not flat, or a non-finite one; says which argument by `name`.
    """
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1 or sample.size == 0:
        raise ValueError(f"{name} must be a non-empty flat sequence, got shape {sample.shape}")
    if not np.isfinite(sample).all():
        raise ValueError(f"{name} holds {int((~np.isfinite(sample)).sum())} non-finite numbers")
    return sample


def differences(after: Sequence[float], before: Sequence[float]) -> Floats:
    """after - before, pair by pair.

    Raises:
        ValueError: as `checked`, or unequal lengths.
    """
    later, earlier = checked(after, "after"), checked(before, "before")
    if later.size != earlier.size:
        raise ValueError(f"pairs need equal lengths, got {later.size} after and {earlier.size} before")
    return later - earlier


def seeded_interval(
    values: Sequence[Sequence[float]],
    *,
    same_scenarios: bool = False,
    at_most: float | None = None,
    num_bootstrap: int = NUM_BOOTSTRAP,
    seed: int = 0,
) -> Interval:
    """Mean over seeds (each counts the same) with a 95 % interval for a new seed's expectation.

    `values` is one sequence per seed: scores, or paired changes. With `same_scenarios` place i is the same
    scenario in every one, and scenarios are resampled together. Drawn seed means are shrunk by what scenario
    noise alone explains of their spread; all is then widened by t over z, so that the interval covers 95 %
    where seeds differ and more where they do not. One seed gives `mean_interval`. `at_most` is the highest
    value that there can be: the interval ends there.

    Raises:
        ValueError: no seed, an empty or non-finite one, or unequal lengths with `same_scenarios`.
    Source: Davison and Hinkley 1997, section 3.8 (nested); Owen 2007, The Pigeonhole Bootstrap (crossed).
    """
    samples = [checked(sample, f"seed {place}") for place, sample in enumerate(values)]
    if not samples:
        raise ValueError("values hold no seed")
    if len(samples) == 1:
        return mean_interval(values[0], num_bootstrap=num_bootstrap, seed=seed)
    if same_scenarios and len({sample.size for sample in samples}) > 1:
        raise ValueError("same_scenarios needs as many values in every seed")
    means = np.array([sample.mean() for sample in samples])
    within, noise = _within(samples, same_scenarios, num_bootstrap, seed)
    rng = np.random.default_rng((seed, 1))
    drawn = (means - means.mean())[rng.integers(0, means.size, (num_bootstrap, means.size))].mean(axis=1)
    replicates = means.mean() + t_factor(means.size) * (_shrink(means, noise) * drawn + within)
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(replicates, [tail, 100 - tail])
    num_values = sum(sample.size for sample in samples)
    high = high if at_most is None else min(high, at_most)
    return Interval(mean=float(means.mean()), low=float(low), high=float(high), n=num_values)


def _within(
    samples: Sequence[Floats], same_scenarios: bool, num_bootstrap: int, seed: int
) -> tuple[Floats, float]:
    """Resampled deviations of the grand mean by scenarios, and the variance they add to it within seeds."""
    rng = np.random.default_rng((seed, 0))
    if same_scenarios:
        table = np.stack(samples)
        column = table.mean(axis=0)
        residual = table - column - table.mean(axis=1, keepdims=True) + table.mean()
        freedom = max(1, (len(samples) - 1) * (column.size - 1))
        noise = float((residual**2).sum() / freedom / table.size)
        return _resampled(column, num_bootstrap, rng), noise
    parts = [_resampled(sample, num_bootstrap, rng) for sample in samples]
    noise = float(sum(sample.var() / sample.size for sample in samples) / len(samples) ** 2)
    return np.mean(parts, axis=0), noise


def _resampled(sample: Floats, num_bootstrap: int, rng: np.random.Generator) -> Floats:
    """Deviations of resampled means, in blocks that fit in memory."""
    rows = max(1, MAX_CELLS // sample.size)
    blocks = [
        sample[rng.integers(0, sample.size, (min(rows, num_bootstrap - start), sample.size))].mean(axis=1)
        for start in range(0, num_bootstrap, rows)
    ]
    deviations: Floats = np.concatenate(blocks) - sample.mean()
    return deviations


def _shrink(means: Floats, noise: float) -> float:
    """Factor that leaves in drawn seed deviations what scenario noise does not explain of the spread."""
    drawn = means.var() / means.size
    beyond = means.var(ddof=1) / means.size - noise
    return float(np.sqrt(beyond / drawn)) if beyond > 0 and drawn > 0 else 0.0


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
    places = np.random.default_rng(0).integers(0, start.size, (NUM_BOOTSTRAP, start.size))
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

"""Intervals and tests for evaluation scores: bootstrap, sign-flip permutation, Holm correction.

Resampling is scipy's. Holm's adjustment is by hand: `multipletests` of statsmodels takes 50 ms a call.
Scores are compared pairwise on the same scenarios, in the same order. Non-finite numbers are refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
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


def mean_interval(values: Sequence[float], *, num_bootstrap: int = 2000, seed: int = 0) -> Interval:
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
    after: Sequence[float], before: Sequence[float], *, num_bootstrap: int = 2000, seed: int = 0
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

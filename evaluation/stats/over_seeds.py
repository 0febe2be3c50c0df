"""Intervals over several trained seeds: hierarchical bootstrap over seeds and the scenarios within them.

Written by hand: scipy and statsmodels have no bootstrap of two levels.

What a further seed would give is uncertain in two ways: training (between seeds) and test cases (within).
With few seeds the first part is the larger and the harder one, so all gets the t distribution's width.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from evaluation.stats.effects import t_factor
from evaluation.stats.intervals import CONFIDENCE, Interval, checked, mean_interval

Floats = NDArray[np.float64]


def seeded_interval(
    values: Sequence[Sequence[float]],
    *,
    same_scenarios: bool = False,
    at_most: float | None = None,
    num_bootstrap: int = 2000,
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
    rows = max(1, 2_000_000 // sample.size)
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

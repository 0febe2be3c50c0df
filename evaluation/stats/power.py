"""Power: the smallest change that a comparison would show, and what may be claimed of a change.

A change is claimed where its interval leaves 0 out, its corrected p is under 0.05 and it is no smaller than
the smallest change that is found in 80 % of such comparisons: smaller ones that turn up are mostly luck.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from evaluation.stats.intervals import CONFIDENCE, differences

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


def detectable_over_seeds(low: float, high: float, num_seeds: int) -> float:
    """Smallest true change that this many seeds show with POWER, from the 95 % interval over seeds.

    Raises:
        ValueError: num_seeds < 2.
    """
    if num_seeds < 2:
        raise ValueError(f"the spread of {num_seeds} seed is unknown; two are needed")
    from scipy import stats  # 1 s, which minutes and refusals need not wait for

    freedom = num_seeds - 1
    level, power = stats.t.ppf(1 - LEVEL / 2, freedom), stats.t.ppf(POWER, freedom)
    return float((high - low) / 2 * (1 + power / level))


def is_claimed(change: Mapping[str, Any]) -> bool:
    """Return whether a change may be claimed: by "mean", "low", "high", and "p", "detectable" if known."""
    p, detectable = change.get("p"), change.get("detectable")
    return (
        (change["low"] > 0 or change["high"] < 0)
        and (p is None or p < LEVEL)
        and (detectable is None or abs(change["mean"]) >= detectable)
    )

"""What a blind choice is worth: the zero of every graded part, so that guessing earns next to nothing."""

from collections.abc import Sequence

BETTER_OF_TWO_FROM = 5  # difficulty


def blind_baseline(
    values: Sequence[int], difficulty: int, *, lower_is_better: bool = False
) -> tuple[int, int]:
    """What a blind pick among the feasible choices is worth, as (numerator, denominator).

    The mean value; from difficulty 5 the mean of the better of two independent picks.

    Example: blind_baseline([10, 20, 60], 1) == (90, 3); blind_baseline([10, 20, 60], 5) == (370, 9)
    """
    if difficulty < BETTER_OF_TWO_FROM:
        return sum(values), len(values)
    worst_first = sorted(values, reverse=lower_is_better)
    return sum((2 * rank + 1) * value for rank, value in enumerate(worst_first)), len(values) ** 2


def share_of_room(value: int, best: int, blind: tuple[int, int]) -> float:
    """How far `value` stands between the blind choice (0, as is all below) and the best one (1)."""
    numerator, denominator = blind
    return max(0.0, (value * denominator - numerator) / (best * denominator - numerator))

"""Worth of a blind choice: the zero of every graded part, so that guessing earns next to nothing."""

from collections.abc import Sequence

HARDER_FROM = 3  # difficulty
NUM_PICKS = 3  # from there


def blind_baseline(values: Sequence[int], difficulty: int) -> tuple[int, int]:
    """Worth of a blind pick among the feasible choices, as (numerator, denominator).

    The mean value; from difficulty 3 the mean of the best of three independent picks.

    Example: blind_baseline([10, 20, 60], 1) == (90, 3); blind_baseline([10, 20, 60], 3) == (1290, 27)
    """
    count = 1 if difficulty < HARDER_FROM else NUM_PICKS
    worst_first = enumerate(sorted(values))
    return sum(((rank + 1) ** count - rank**count) * value for rank, value in worst_first), len(
        values
    ) ** count


def share_of_room(value: int, best: int, blind: tuple[int, int]) -> float:
    """Place of `value` between the blind choice (0, as is all below) and the best one (1)."""
    numerator, denominator = blind
    return max(0.0, (value * denominator - numerator) / (best * denominator - numerator))

"""Graded parts: their zero is the mean worth of a blind choice, by hand and by listing all pairs of picks."""

import random
from fractions import Fraction
from itertools import product

import pytest

from scenarios.headroom import BETTER_OF_TWO_FROM, blind_baseline, share_of_room


def test_a_blind_choice_is_the_mean_and_later_the_better_of_two_picks() -> None:
    assert blind_baseline([10, 20, 60], 1) == (90, 3)
    assert blind_baseline([10, 20, 60], 4) == (90, 3)
    # pairs: 10 once, 20 three times, 60 five times
    assert blind_baseline([60, 10, 20], 5) == (10 + 3 * 20 + 5 * 60, 9)
    assert blind_baseline([60, 10, 20], 10, lower_is_better=True) == (60 + 3 * 20 + 5 * 10, 9)


@pytest.mark.parametrize("lower_is_better", [False, True])
def test_the_better_of_two_is_that_of_all_pairs(lower_is_better: bool) -> None:
    rng = random.Random(0)
    for _ in range(20):
        values = [rng.randint(1, 50) for _ in range(rng.randint(1, 7))]
        better = min if lower_is_better else max
        pairs = [better(pair) for pair in product(values, repeat=2)]
        found = blind_baseline(values, BETTER_OF_TWO_FROM, lower_is_better=lower_is_better)
        assert Fraction(*found) == Fraction(sum(pairs), len(pairs))


def test_shares_of_the_room_by_hand() -> None:
    assert [share_of_room(value, 60, (90, 3)) for value in (10, 30, 45, 60)] == [0, 0, 0.5, 1]
    assert [share_of_room(value, 10, (60, 2)) for value in (10, 25, 30, 40)] == [
        1,
        0.25,
        0,
        0,
    ]  # small is good

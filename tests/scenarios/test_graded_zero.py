"""Graded parts: their zero is the mean worth of a blind choice, by hand and by listing all pairs of picks."""

import random
from fractions import Fraction
from itertools import product

from scenarios.headroom import HARDER_FROM, blind_baseline, share_of_room


def test_a_blind_choice_is_the_mean_and_later_the_best_of_three_picks() -> None:
    assert blind_baseline([10, 20, 60], 1) == (90, 3)
    assert blind_baseline([10, 20, 60], 2) == (90, 3)
    # of three picks the best is 10 in 1, 20 in 7, 60 in 19 of 27
    assert blind_baseline([60, 10, 20], 3) == (10 + 7 * 20 + 19 * 60, 27)


def test_the_best_of_three_is_that_of_all_combinations() -> None:
    rng = random.Random(0)
    for _ in range(20):
        values = [rng.randint(1, 50) for _ in range(rng.randint(1, 7))]
        best = [max(picked) for picked in product(values, repeat=3)]
        assert Fraction(*blind_baseline(values, HARDER_FROM)) == Fraction(sum(best), len(best))


def test_shares_of_the_room_by_hand() -> None:
    assert [share_of_room(value, 60, (90, 3)) for value in (10, 30, 45, 60)] == [0, 0, 0.5, 1]

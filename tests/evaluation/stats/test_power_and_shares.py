"""Smallest detectable changes, claims, shares of a gap and pass^k against hand-computed numbers."""

import math

import pytest

from evaluation.stats.intervals import (
    closed_share,
    detectable_change,
    is_claimed,
    pass_all,
)


def test_the_detectable_change_falls_with_the_root_of_the_cases() -> None:
    after, before = [1.0, 0.0] * 50, [0.0] * 100  # changes of standard deviation 0.5025
    deviation = math.sqrt(100 * 0.25 / 99)
    assert detectable_change(after, before) == pytest.approx(2.8016 * deviation / 10, rel=1e-4)
    four_times = detectable_change(after * 4, before * 4)
    assert four_times == pytest.approx(2.8016 * deviation / 20, rel=5e-3)
    assert detectable_change([1.0], [0.0]) is None


def test_only_what_is_found_again_is_claimed() -> None:
    change = {"mean": 0.05, "low": 0.01, "high": 0.09, "p": 0.01, "detectable": 0.04}
    assert is_claimed(change)
    assert not is_claimed(change | {"detectable": 0.06})
    assert not is_claimed(change | {"p": 0.06})
    assert not is_claimed(change | {"low": -0.01})
    assert is_claimed({"mean": -0.05, "low": -0.09, "high": -0.01})


def test_the_closed_share_is_a_ratio_of_mean_gains() -> None:
    before, after, best = [0.0, 0.4] * 50, [0.5, 0.4] * 50, [1.0, 1.0] * 50
    found = closed_share(before, after, best)
    assert found is not None
    assert found.mean == pytest.approx(0.25 / 0.8)
    assert found.low < found.mean < found.high
    assert closed_share(best, after, best) is None  # nothing is left to close
    with pytest.raises(ValueError, match="equal lengths"):
        closed_share(before, after[:-1], best)


def test_pass_k_is_the_chance_that_all_of_k_tries_succeed() -> None:
    tries = [[True, True, True, True], [True, True, False, False]]
    assert pass_all(tries, 1) == pytest.approx((1 + 0.5) / 2)
    assert pass_all(tries, 2) == pytest.approx((1 + 1 / 6) / 2)  # 1 of 6 pairs of the second case
    assert pass_all(tries, 4) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="at least 5 tries"):
        pass_all(tries, 5)

"""Choosing cases for people: order by hand, figures by hand, and rounds that can be repeated."""

import random

import pytest

from benchmarks.review.selection import (
    WAYS,
    Candidate,
    ReviewCosts,
    RoundSettings,
    Verified,
    choose_escalated,
    correlate,
    estimate_error,
    measure_groups,
    play_rounds,
    rank_candidates,
    review_round,
)


def candidate(key: str, uncertainty: float, *qualities: float, group: str = "g") -> Candidate:
    return Candidate(key=key, group=group, uncertainty=uncertainty, qualities=qualities)


CASES = [
    candidate("sure", 0.1, 5.0, 5.0),
    candidate("torn", 0.9, 4.0, 5.0),
    candidate("wide", 0.5, 1.0, 9.0),
    candidate("other", 0.2, 3.0, 3.0, group="h"),
]


def rank(way: str, history: list[Verified]) -> list[str]:
    ranked = rank_candidates(way, CASES, history, rng=random.Random(0))  # type: ignore[arg-type]
    assert sorted(one.key for one in ranked) == sorted(one.key for one in CASES)
    return [one.key for one in ranked]


def test_orders_by_hand() -> None:
    assert rank("uncertainty", []) == ["torn", "wide", "other", "sure"]
    assert rank("gap", [])[:2] == ["wide", "torn"]
    assert rank("random", []) == rank("random", [])
    assert {rank_candidates("random", CASES, [], rng=random.Random(n))[0].key for n in range(40)} == {
        one.key for one in CASES
    }


def test_consistency_follows_uncertainty_only_where_it_told_errors() -> None:
    tells = [Verified(group="g", uncertainty=u, is_error=u > 0.5) for u in (0.1, 0.2, 0.8, 0.9)] * 5
    misleads = [Verified(group="g", uncertainty=u, is_error=u < 0.5) for u in (0.1, 0.2, 0.8, 0.9)] * 5
    always = [Verified(group="h", uncertainty=0.1, is_error=True)] * 20
    assert rank("consistency", tells)[0] == "torn"
    assert rank("consistency", [*misleads, *always])[0] == "other"  # its group errs, however sure it is


def test_point_biserial_correlation_by_hand() -> None:
    # means 0.75 and 0.25, population spread sqrt(0.125), share a half
    assert correlate([(0.0, False), (0.5, False), (0.5, True), (1.0, True)]) == pytest.approx(
        0.5 / 0.125**0.5 / 2
    )
    assert correlate([(0.3, True), (0.3, False)]) == 0.0
    assert correlate([(0.1, True), (0.9, True)]) == 0.0
    assert correlate([]) == 0.0


def test_figures_of_groups_are_mixed_with_those_of_all() -> None:
    history = [Verified(group="g", uncertainty=0.5, is_error=True)] * 2 + [
        Verified(group="h", uncertainty=0.5, is_error=False)
    ] * 2
    groups = measure_groups(history)
    assert groups[""].error_rate == pytest.approx((2 + 2 * 0.5) / 6)
    assert groups["g"].error_rate == pytest.approx((2 + 2 * 0.5) / 4)
    assert groups["h"].error_rate == pytest.approx((0 + 2 * 0.5) / 4)


def test_a_review_pays_where_the_expected_error_costs_more() -> None:
    history = [Verified(group="g", uncertainty=0.1, is_error=False)] * 20 + [
        Verified(group="g", uncertainty=0.8, is_error=True)
    ] * 20
    assert estimate_error(CASES[0], history) == pytest.approx(1 / 22)
    assert estimate_error(CASES[1], history) == pytest.approx(21 / 22)
    assert estimate_error(CASES[0], []) == 0.5
    chosen = choose_escalated(CASES, history, ReviewCosts(review=1.0, missed_error=5.0))
    assert [one.key for one in chosen] == ["torn", "wide"]
    assert choose_escalated(CASES, history, ReviewCosts(review=5.0, missed_error=5.0)) == []


def test_without_a_share_as_many_are_reviewed_as_leave_few_errors() -> None:
    cases = [candidate(str(place), 1 - place / 4) for place in range(4)]
    values = {"0": 0.0, "1": 0.0, "2": 1.0, "3": 1.0}
    history: list[Verified] = []
    settings = RoundSettings(review_share=None, most_missed=0.25)
    result, reviewed = review_round("uncertainty", cases, values, history, settings, rng=random.Random(0))
    assert [one.key for one in reviewed] == ["0"]
    assert (result.needed, result.missed, result.errors) == (0.25, 0.25, 0.5)
    assert len(history) == 1


def test_rounds_are_the_same_each_time_and_ask_about_the_same_cases() -> None:
    settings = RoundSettings(num_rounds=2, cases_per_round=6, plays_per_case=3, difficulties=(2,))
    first = {way: play_rounds(way, settings, seed=1) for way in WAYS}
    assert play_rounds("gap", settings, seed=1) == first["gap"]
    for results in first.values():
        for one in results:
            assert 0 <= one.missed <= one.errors <= 1
            assert 0 <= one.needed <= 1
            assert 0 <= one.escalated_missed <= one.errors
        assert results[0].escalated == 1.0  # nothing is known yet

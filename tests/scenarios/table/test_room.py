"""The table leaves room for joint training: a coordinated team beats the mixture, nobody wins blind."""

from functools import cache

import pytest

from scenarios.table.experts import FUNDING_HABITS, REPORT_HABITS
from scenarios.table.measure import BLIND_PLAYERS, MIXED, mean_blind_value, mean_value
from scenarios.table.scenario import TableScenario, generate

DIFFICULTIES = (1, 3, 6)
COUNT = 120


@cache
def cases(difficulty: int) -> tuple[TableScenario, ...]:
    return tuple(generate("train", 5, index, difficulty) for index in range(COUNT))


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
def test_the_best_team_is_well_above_the_common_mixture(difficulty: int) -> None:
    drawn = cases(difficulty)
    best = max(mean_value(drawn, habit, "exact") for habit in REPORT_HABITS)
    assert best == mean_value(drawn, "measured", "exact")
    assert best - mean_value(drawn, MIXED, "return") >= 0.12
    assert best <= 0.9  # the optimum is further away than any demonstration


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
def test_arithmetic_on_the_reports_is_enough(difficulty: int) -> None:
    drawn = cases(difficulty)
    for habit in ("measured", "strict", "easy"):
        values = [mean_value(drawn, habit, funding) for funding in FUNDING_HABITS]
        assert max(values) - min(values) <= 0.05


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
@pytest.mark.parametrize("player", BLIND_PLAYERS)
def test_nobody_wins_without_looking(player: str, difficulty: int) -> None:
    assert mean_blind_value(cases(difficulty), player) <= 0.35


def test_some_cases_have_no_way_out() -> None:
    hopeless = [case for difficulty in DIFFICULTIES for case in cases(difficulty) if case.optimum is None]
    assert 1 <= len(hopeless) <= 0.06 * COUNT * len(DIFFICULTIES)


def test_a_case_is_a_function_of_its_coordinates() -> None:
    assert generate("test", 1, 2, 3) == generate("test", 1, 2, 3)
    assert generate("test", 1, 2, 3).case.budget != 0
    with pytest.raises(ValueError, match="offers_per_option must be 1 to 4, got 9"):
        generate("test", 1, 2, 3, offers_per_option=9)

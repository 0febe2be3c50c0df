"""The company case behind all seats: hard limits in natural units, figures that all views share."""

import pytest

from roles.team import SPECIALISTS
from scenarios import team
from scenarios.base import SPLITS
from scenarios.team.case import seat_team
from scenarios.team.certify import RECHECKS
from scenarios.world.case import (
    COMPROMISE_SHARE,
    GOALS,
    NUM_OPTIONS,
    VIEWS,
    build_case,
    figure_utility,
    largest_figure,
)


@pytest.mark.parametrize("difficulty", [1, 2, 3, 4, 6])
def test_seats_are_views_of_the_case(difficulty: int) -> None:
    for index in range(8):
        case = build_case("train", 0, index, difficulty)
        seen = team.generate("train", 0, index, difficulty)
        assert seen == seat_team(case)
        assert (seen.sector, seen.options, seen.difficulty) == (case.sector, case.options, case.difficulty)
        assert len(case.options) == NUM_OPTIONS[difficulty - 1]
        for role, seat in seen.seats.items():
            for option, structure in seat.facts["structures"].items():
                figure = VIEWS[role].measure(structure)
                assert figure == case.figures[role][option] == seat.facts["figures"][option]
                assert figure == RECHECKS[role](structure)
                utility = figure_utility(role, difficulty, figure)
                assert utility == case.utilities[role][option] == seat.facts["utilities"][option]
            assert (seat.facts["stakes"], seat.facts["limit"]) == (case.stakes[role], case.limits[role])


@pytest.mark.parametrize("difficulty", [1, 3, 5])
def test_an_option_is_vetoed_where_its_figure_is_over_the_bound(difficulty: int) -> None:
    vetoes = 0
    for index in range(25):
        case = build_case("test", 0, index, difficulty)
        seen = seat_team(case)
        for role in SPECIALISTS:
            bound = case.bound(role)
            for option, figure in case.figures[role].items():
                is_vetoed = role in seen.truth["vetoes"][option]
                assert is_vetoed == (bound is not None and figure > bound)
                vetoes += is_vetoed
    assert vetoes > 0


def test_bounds_are_the_largest_figures_still_accepted() -> None:
    for role in SPECIALISTS:
        assert largest_figure(role, 2, 10) is None
        for limit in (11, 40, 75, 99):
            bound = largest_figure(role, 2, limit)
            assert bound is not None
            assert figure_utility(role, 2, bound) >= limit > figure_utility(role, 2, bound + 1)


def test_a_case_can_be_looked_at() -> None:
    case = build_case("train", seed=0, index=7, difficulty=2)
    assert case.options == ("A", "B", "C")
    assert (case.slo, case.deadline, case.appetite, case.budget) == tuple(map(case.bound, SPECIALISTS))
    assert sorted(case.goals) == sorted(GOALS.values())
    most = max(case.stakes, key=lambda role: case.stakes[role])
    assert case.goals[0] == GOALS[most]
    assert set(case.structures["cto"]["A"]) == {"components", "edges"}
    assert set(case.structures["coo"]["A"]) == {"people", "packages"}
    assert set(case.structures["risk"]["A"]) == {"impacts", "edges", "controls"}
    assert set(case.structures["cost"]["A"]) == {"items", "floor", "discount"}


def test_cases_are_pure_and_streams_apart() -> None:
    assert build_case("train", 0, 3, 3) == build_case("train", 0, 3, 3)
    figures = {str(build_case(split, seed, 3, 3).figures) for split in SPLITS for seed in (0, 1)}  # type: ignore[arg-type]
    assert len(figures) == 6
    with pytest.raises(ValueError, match="difficulty"):
        build_case("train", 0, 0, 11)


def test_the_best_option_is_nobodys_favourite_as_often_as_it_should() -> None:
    nobodys = cases = deadlocks = 0
    for index in range(150):
        case = build_case("validation", 0, index, 5)
        best = seat_team(case).truth["best"]
        deadlocks += best is None
        if best is not None:
            cases += 1
            nobodys += not any(row[best] == max(row.values()) for row in case.utilities.values())
    assert abs(nobodys / cases - COMPROMISE_SHARE[4]) < 0.12
    assert deadlocks / 150 < 0.08

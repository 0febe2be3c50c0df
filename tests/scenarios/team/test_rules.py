"""Rules of the team family: needed seats, hidden options, nobody wins blind, reports suffice, room to learn.

Over a sample in the fast loop; over 500 cases per difficulty where slow tests run.
"""

import pytest
from fast_loop import slow_except

from roles.team import Report
from scenarios.company.coordination import is_hidden_profile, seat_decides
from scenarios.company.optimum import part_of
from scenarios.team import TeamScenario, decision_value, generate
from scenarios.team.experts import FUNDING_HABITS, REPORT_HABITS, best_decision, make_offer
from scenarios.team.measure import BLIND_PLAYERS, MIXED, mean_blind_value, mean_value
from scenarios.team.offers import check_report, is_needed, is_vetoed
from scenarios.team.value import judge_decision

FULL = 500
FAST = [(1, 100), (4, 80)]  # (difficulty, number of cases)
SAMPLES = slow_except([*FAST, *((level, FULL) for level in range(1, 11))], *FAST)


@pytest.fixture(
    scope="module", params=SAMPLES, ids=lambda sample: f"difficulty {sample[0]}, {sample[1]} cases"
)
def drawn(request: pytest.FixtureRequest) -> list[TeamScenario]:
    """Cases of one difficulty; all tests of one sample run before the next is drawn."""
    difficulty, count = request.param
    return [generate("train", 5, index, difficulty) for index in range(count)]


@pytest.fixture(scope="module")
def solvable(drawn: list[TeamScenario]) -> list[TeamScenario]:
    return [case for case in drawn if case.optimum is not None]


def test_every_seat_is_needed(solvable: list[TeamScenario]) -> None:
    """Without its facts another option looks best, in at least a sixth of the cases for every seat."""
    for seat in solvable[0].seats:
        assert sum(seat_decides(case.case, seat) for case in solvable) >= len(solvable) / 6


def test_the_best_option_often_hides(solvable: list[TeamScenario]) -> None:
    """Neither the public facts nor any single seat names it, in at least a quarter of the cases."""
    assert sum(is_hidden_profile(case.case) for case in solvable) >= len(solvable) / 4


@pytest.mark.parametrize("player", BLIND_PLAYERS)
def test_nobody_wins_without_looking(player: str, drawn: list[TeamScenario]) -> None:
    assert mean_blind_value(drawn, player) <= 0.35


def test_one_offer_per_option_is_enough_for_the_optimum(solvable: list[TeamScenario]) -> None:
    """The best reachable with the allowed offers: every seat offers the part that the optimum funds."""
    for case in solvable:
        assert case.optimum is not None
        plan = case.optimum.plan
        table = {}
        for seat in case.seats:
            part = part_of(case.case, seat, plan.option, plan.funded.get(seat, ()))
            report = Report(
                offers=[make_offer(part)] if part.choice else [],
                needs=[option for option in case.options if is_needed(case, seat, option)],
                veto=[option for option in case.options if is_vetoed(case, seat, option)],
            )
            table[seat] = check_report(case, seat, report)
        assert decision_value(case, table, best_decision(case.public, table, "exact")) == 1.0


@pytest.mark.parametrize("habit", ["measured", "strict", MIXED])
def test_arithmetic_on_the_reports_is_enough(habit: str, drawn: list[TeamScenario]) -> None:
    """Funding in order of return or worth comes within .05 of the best of all combinations."""
    values = {funding: mean_value(drawn, habit, funding) for funding in FUNDING_HABITS}
    assert max(values.values()) == values["exact"]
    assert values["exact"] - values["return"] <= 0.05
    assert values["exact"] - values["worth"] <= 0.05


def test_a_coordinated_team_is_well_above_the_common_mixture(drawn: list[TeamScenario]) -> None:
    best = max(mean_value(drawn, habit, "exact") for habit in REPORT_HABITS)
    assert best == mean_value(drawn, "measured", "exact")
    assert best - mean_value(drawn, MIXED, "return") >= 0.12
    assert best <= 0.9  # the optimum is further away than any demonstration


def test_few_cases_have_no_way_out_and_there_escalating_is_right(drawn: list[TeamScenario]) -> None:
    hopeless = [case for case in drawn if case.optimum is None]
    assert len(hopeless) <= 0.1 * len(drawn)
    assert hopeless or len(drawn) < FULL
    for case in hopeless:
        silent = dict.fromkeys(case.seats)
        escalated = best_decision(case.public, silent, "exact").model_copy(
            update={"option": "none", "fund": [], "escalate": True}
        )
        assert judge_decision(case, silent, escalated).value == 1.0


def test_a_case_is_a_function_of_its_coordinates() -> None:
    assert generate("test", 1, 2, 3) == generate("test", 1, 2, 3)
    with pytest.raises(ValueError, match="offers_per_option must be 1 to 4, got 9"):
        generate("test", 1, 2, 3, offers_per_option=9)

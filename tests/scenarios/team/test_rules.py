"""Rules of the team family: needed seats, hidden options, nobody wins blind, reports suffice, room to learn.

Over a sample in the fast loop, 160 cases per difficulty where slow tests run, 500 with `--counts full`.
"""

import random
from collections.abc import Callable, Mapping
from statistics import fmean

import pytest
from fast_loop import slow_except
from trial_counts import num_trials

from benchmarks.scenarios.company_cases import seat_decides
from benchmarks.scenarios.team_tables import decide_first
from evaluation.scoring.baselines import (
    check_reports,
    decide_at_random,
    play_experts,
    play_optimum,
    write_reports,
)
from roles.team import NO_OPTION, Decision
from scenarios.company.coordination import is_hidden_profile
from scenarios.team import Table, TeamScenario, decision_value, generate
from scenarios.team.experts import FUNDING_HABITS, REPORT_HABITS, best_decision
from scenarios.team.value import judge_decision


def pick_public_favourite(case: TeamScenario, table: Table, rng: random.Random) -> Decision:
    base = case.public.base
    return Decision(option=max(base, key=base.__getitem__), fund=[], escalate=False)


ESCALATE = Decision(option=NO_OPTION, fund=[], escalate=True)
BLIND: Mapping[str, Callable[[TeamScenario, Table, random.Random], Decision | None]] = {
    "random": decide_at_random,
    "first option, all offers": decide_first,
    "public favourite, nothing funded": pick_public_favourite,
    "always escalate": lambda case, table, rng: ESCALATE,
    "silent": lambda case, table, rng: None,
}


def mean_value(cases: list[TeamScenario], reports: str | None, funding: str) -> float:
    """Mean V of experts who report by one habit (None: each draws its own) and fund by another."""
    values = []
    for case in cases:
        play = play_experts(reports, funding)(case, random.Random(f"0/{case.key}"))
        values.append(decision_value(case, check_reports(case, play.reports), play.decision))
    return fmean(values)


def mean_blind_value(cases: list[TeamScenario], player: str) -> float:
    """Mean V of a ReconcileGPT that does not weigh the reports of mixed experts."""
    values = []
    for case in cases:
        rng = random.Random(f"0/{case.key}")
        table = check_reports(case, write_reports(case, None, rng))
        values.append(decision_value(case, table, BLIND[player](case, table, rng)))
    return fmean(values)


FULL = num_trials(160, 500)  # each level has a case without a way out among the first 152
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


@pytest.mark.parametrize("player", BLIND)
def test_nobody_wins_without_looking(player: str, drawn: list[TeamScenario]) -> None:
    assert mean_blind_value(drawn, player) <= 0.35


def test_one_offer_per_option_is_enough_for_the_optimum(solvable: list[TeamScenario]) -> None:
    """The best reachable with the allowed offers: every seat offers the part that the optimum funds."""
    for case in solvable:
        table = check_reports(case, play_optimum(case, random.Random(0)).reports)
        assert decision_value(case, table, best_decision(case.public, table, "exact")) == 1.0


@pytest.mark.parametrize("habit", ["measured", "strict", None])
def test_arithmetic_on_the_reports_is_enough(habit: str | None, drawn: list[TeamScenario]) -> None:
    """Funding in order of return or worth comes within .05 of the best of all combinations."""
    values = {funding: mean_value(drawn, habit, funding) for funding in FUNDING_HABITS}
    assert max(values.values()) == values["exact"]
    assert values["exact"] - values["return"] <= 0.05
    assert values["exact"] - values["worth"] <= 0.05


def test_a_coordinated_team_is_well_above_the_common_mixture(drawn: list[TeamScenario]) -> None:
    """The best rule written by hand is `measured`; what searches found is better."""
    found = {habit: mean_value(drawn, habit, "exact") for habit in REPORT_HABITS}
    best, shown = found.pop("searched"), found.pop("rising")
    assert max(found.values()) == found["measured"] < min(shown, best)
    assert best - mean_value(drawn, None, "return") >= 0.12
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

"""A seat of the team as a task for one learner: experts play the other seats, the team reward scores it.

A specialist writes its report and ReconcileGPT its decision; experts of the best habit write the rest, and
every seat votes as it should. The reward is the team reward, at least 0. Whole tables with several learners
are `simulator.export.pettingzoo_env` and the package environments/emads_team.
"""

import json
import random
from functools import lru_cache, partial
from typing import Any

from evaluation.scoring.baselines import book_episode
from roles.base import Role
from roles.team import RECONCILER
from scenarios.base import Family, Scenario, Split, Step, ToolCall, Verdict
from scenarios.team import PlanGame, TeamScenario, generate
from scenarios.team.experts import FUNDING_HABITS, REPORT_HABITS, best_decision, best_report
from scenarios.team.game import Parsed
from scenarios.team.offers import load_table
from simulator.reward import TeamRewardWeights, TeamVerdict, score_episode

REPORT_HABIT, FUNDING_HABIT = "easy", "exact"  # of the experts who play the other seats
PREFIX = "team_"
SEATS = ("cto", "coo", "risk", "cost", RECONCILER)
WEIGHTS = TeamRewardWeights()


@lru_cache(maxsize=1024)
def draw_case(split: Split, seed: int, index: int, difficulty: int) -> TeamScenario:
    """The team's case with these coordinates."""
    return generate(split, seed, index, difficulty)


def case_of(scenario: Scenario) -> TeamScenario:
    """The whole case of which the scenario is one seat's view."""
    return draw_case(scenario.split, scenario.seed, scenario.index, scenario.difficulty)


def seat_of(scenario: Scenario) -> str:
    """The seat that the learner plays."""
    return scenario.family.removeprefix(PREFIX)


def find_role(scenario: Scenario) -> Role:
    """The seat's role as it stands at this table: its system text holds the rules of the case."""
    return _game(case_of(scenario)).prompt_role(seat_of(scenario))


def _game(case: TeamScenario) -> PlanGame:
    return PlanGame(case).without_questions()


def _write_report(case: TeamScenario, seat: str, habit: str) -> str:
    return json.dumps(best_report(case, seat, habit).model_dump())


@lru_cache(maxsize=1024)
def _expert_reports(split: Split, seed: int, index: int, difficulty: int) -> dict[str, str]:
    case = draw_case(split, seed, index, difficulty)
    return {seat: _write_report(case, seat, REPORT_HABIT) for seat in case.seats}


def _reports(scenario: Scenario, own: str | None = None) -> dict[str, str]:
    """Reports of all specialists, the learner's own among them if it is one."""
    reports = _expert_reports(scenario.split, scenario.seed, scenario.index, scenario.difficulty)
    return reports if own is None else {**reports, seat_of(scenario): own}


def _read(case: TeamScenario, reports: dict[str, str]) -> dict[str, Parsed | None]:
    return {seat: _game(case).read_report(seat, text) for seat, text in reports.items()}


def _decide(case: TeamScenario, reports: dict[str, str], habit: str) -> str:
    table = load_table(_read(case, reports))
    return json.dumps(best_decision(case.public, table, habit).model_dump(mode="json"))


def _generate(seat: str, split: Split, seed: int, index: int, difficulty: int) -> Scenario:
    case = draw_case(split, seed, index, difficulty)
    game = _game(case)
    if seat == RECONCILER:
        brief = game.write_decision_brief(_read(case, _expert_reports(split, seed, index, difficulty)))
    else:
        brief = game.write_report_brief(seat)
    return Scenario(
        family=f"{PREFIX}{seat}",
        split=split,
        seed=seed,
        index=index,
        difficulty=difficulty,
        role=seat,
        brief=brief,
        facts={"seat": seat},
        truth={},
        optimal_tool_calls=2 * len(case.options),
    )


def score_table(case: TeamScenario, reports: dict[str, str], decision: str) -> TeamVerdict:
    """The team's verdict on these reports and this decision when every seat votes as it should."""
    return score_episode(case, book_episode(case, reports, decision), WEIGHTS)


def find_best_team(case: TeamScenario) -> tuple[dict[str, str], str]:
    """Reports and decision of the experts' best house: one habit reports, ReconcileGPT funds exactly."""
    houses = []
    for habit in REPORT_HABITS:
        reports = {seat: _write_report(case, seat, habit) for seat in case.seats}
        houses.append((reports, _decide(case, reports, FUNDING_HABIT)))
    return max(houses, key=lambda house: score_table(case, *house).reward)


def _verify(scenario: Scenario, text: str) -> Verdict:
    case, seat = case_of(scenario), seat_of(scenario)
    game = _game(case)
    if seat == RECONCILER:
        reports, decision = _reports(scenario), text
        is_read = game.read_decision(_read(case, reports), text) is not None
    else:
        is_read = game.read_report(seat, text) is not None
        reports = _reports(scenario, text)
        decision = _decide(case, reports, FUNDING_HABIT)
    verdict = score_table(case, reports, decision)
    reward = max(0.0, verdict.reward) if is_read else 0.0
    exact = is_read and verdict.reward >= 1 - 1e-9
    parts = {"value": verdict.value, "consensus": verdict.consensus, "unresolved": verdict.unresolved}
    failure = None if exact else "suboptimal" if is_read else "schema"
    return Verdict(
        reward=reward,
        parts=parts if is_read else {},
        exact=exact,
        feasible=is_read and verdict.unresolved == 0,
        explanation=verdict.explanation,
        failure=failure,
    )


def _list_expert_answers(scenario: Scenario) -> list[str]:
    case, seat = case_of(scenario), seat_of(scenario)
    if seat == RECONCILER:
        return [_decide(case, _reports(scenario), habit) for habit in FUNDING_HABITS]
    return [_write_report(case, seat, habit) for habit in REPORT_HABITS]


def find_best_answer(scenario: Scenario) -> str:
    """Return the answer of the best of the experts' habits: the best known, not proved the best."""
    return max(_list_expert_answers(scenario), key=lambda text: _verify(scenario, text).reward)


def _call_tool(scenario: Scenario, call: ToolCall) -> str:
    case = case_of(scenario)
    return _game(case).call_tool(seat_of(scenario), call, _read(case, _reports(scenario)))


def _solve(scenario: Scenario) -> dict[str, Any]:
    return dict(json.loads(find_best_answer(scenario)))


def _certify(scenario: Scenario) -> tuple[float, float]:
    rewards = [_verify(scenario, text).reward for text in _list_expert_answers(scenario)]
    return _verify(scenario, find_best_answer(scenario)).reward, max(rewards)


def _demonstrate(scenario: Scenario, _rng: random.Random) -> tuple[Step, ...]:
    return (Step(text=find_best_answer(scenario)),)


def make_seat_family(seat: str) -> Family:
    """The family of one seat. Example: make_seat_family("cto").name == "team_cto" """
    return Family(
        name=f"{PREFIX}{seat}",
        role=seat,
        generate=partial(_generate, seat),
        verify=_verify,
        solve=_solve,
        certify=_certify,
        call_tool=_call_tool,
        demonstrate=_demonstrate,
    )

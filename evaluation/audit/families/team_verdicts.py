"""Presents the team's four verdicts as families, the one thing that probes know.

`report`, `decision` and `vote` are the seats' own verdicts; `value` is V of the team reward.
"""

import json
import random
from collections.abc import Callable, Mapping
from fractions import Fraction

from evaluation.audit.families.team_seats import (
    SeatKind,
    best_by_reports,
    best_by_structures,
    case_of,
    price_again,
    seat_generator,
)
from evaluation.audit.records import Answer
from evaluation.scoring.team_players import decide_at_random, decide_richest
from roles.base import AnswerError
from roles.team import RECONCILER, Decision
from scenarios.base import Family, Scenario, Step, ToolCall, ToolError, Verdict, rejected
from scenarios.team.experts import best_decision, best_report, best_vote
from scenarios.team.funding import best_funding
from scenarios.team.offers import is_needed, is_vetoed
from scenarios.team.reading import read_decision
from scenarios.team.value import decision_value
from scenarios.team.verdicts import verify_decision, verify_report, verify_vote


def judge_report(scenario: Scenario, text: str) -> Verdict:
    """Return the specialist's own verdict."""
    return verify_report(case_of(scenario).case, scenario.role, text)


def judge_decision(scenario: Scenario, text: str) -> Verdict:
    """ReconcileGPT's own verdict on the reports that it has."""
    seat = case_of(scenario)
    return verify_decision(seat.case.public, seat.table, text)


def judge_vote(scenario: Scenario, text: str) -> Verdict:
    """Return the voter's own verdict."""
    seat = case_of(scenario)
    return verify_vote(seat.case, seat.role, seat.plan, False, text)


def judge_value(scenario: Scenario, text: str) -> Verdict:
    """V of the team reward, as if it were a verdict."""
    seat = case_of(scenario)
    try:
        decision = read_decision(seat.case.public, seat.table, text)
    except AnswerError as error:
        return rejected(error.failure, str(error))
    value = decision_value(seat.case, seat.table, decision)
    return Verdict(
        reward=value,
        parts={"value": value},
        exact=value == 1.0,
        feasible=value > 0,
        explanation=f"value {value:.2f}",
        failure=None if value == 1.0 else "suboptimal",
    )


def solve_report(scenario: Scenario) -> Answer:
    """Return the report of an expert whose habit changes with the case."""
    seat = case_of(scenario)
    habit = ("full", "lean", "strict", "easy", "measured")[seat.index % 5]
    return best_report(seat.case, seat.role, habit).model_dump()


def solve_decision(scenario: Scenario) -> Answer:
    """Return the best decision by the reports."""
    seat = case_of(scenario)
    return _as_answer(best_decision(seat.case.public, seat.table, "exact"))


def _as_answer(decision: Decision) -> Answer:
    answer: Answer = decision.model_dump(mode="json")
    return answer


def solve_vote(scenario: Scenario) -> Answer:
    """Return the right vote."""
    seat = case_of(scenario)
    return best_vote(seat.case, seat.role, seat.plan, escalated=False).model_dump()


def certify_parts(scenario: Scenario) -> tuple[float, float]:
    """Sum over the options of the seat's best worth that keeps its limit, as stated and measured again."""
    seat = case_of(scenario)
    stated, again = 0, 0
    for option in seat.case.options:
        parts = seat.case.parts_of(seat.role, option)
        stated += max((part.worth for part in parts if part.keeps_limit), default=0)
        priced = price_again(seat.case, seat.role, option)
        again += max((part.worth for part in priced if part.keeps_limit), default=0)
    return float(stated), float(again)


def certify_funding(scenario: Scenario) -> tuple[float, float]:
    """Worth of the best plan by the reports, and the most that any set of offers is worth; 0 for none."""
    seat = case_of(scenario)
    best = best_funding(seat.case.public, seat.table)
    again = best_by_reports(seat.case.public, seat.table)
    return float(best.worth if best else 0), float(0 if again is None else again)


def certify_value(scenario: Scenario) -> tuple[float, float]:
    """Worth of the optimum as stated, and from structures measured again; 0 where nothing can be run."""
    seat = case_of(scenario)
    again = best_by_structures(seat.case)
    return float(seat.case.optimum.worth if seat.case.optimum else 0), float(0 if again is None else again)


def refuse_tools(_scenario: Scenario, _call: ToolCall) -> str:
    """Refuse every call: what is audited is the answer.

    Raises:
        ToolError: always.
    """
    raise ToolError("no tools here")


def report_best_singles(scenario: Scenario, _rng: random.Random) -> str:
    """Return per option the one upgrade that returns most and keeps the limit, and the right flags."""
    seat = case_of(scenario)
    offers = []
    for option in seat.case.options:
        parts = seat.case.parts_of(seat.role, option)
        singles = [part for part in parts if len(part.choice) == 1 and part.keeps_limit and part.worth > 0]
        if singles:
            best = max(singles, key=lambda part: Fraction(part.worth, max(1, part.cost)))
            offers.append(
                {"option": option, "part": list(best.choice), "cost": best.cost, "worth": best.worth}
            )
    needs = [option for option in seat.case.options if is_needed(seat.case, seat.role, option)]
    veto = [option for option in seat.case.options if is_vetoed(seat.case, seat.role, option)]
    return json.dumps({"offers": offers, "needs": needs, "veto": veto})


def decide_greedily(scenario: Scenario, rng: random.Random) -> str:
    """Return the option that looks richest if all offers could be paid, funded by worth while money lasts."""
    seat = case_of(scenario)
    return decide_richest(seat.case, seat.table, rng).model_dump_json()


def vote_by_own_part(scenario: Scenario, _rng: random.Random) -> str:
    """Object to no decision, and to an option that needs the own part and does not fund it."""
    seat = case_of(scenario)
    plan = seat.plan
    is_bad = plan is None or (is_needed(seat.case, seat.role, plan.option) and not plan.funded.get(seat.role))
    return json.dumps({"vote": "object" if is_bad else "accept"})


def _random_report(scenario: Scenario, rng: random.Random) -> str:
    seat = case_of(scenario)
    offers = []
    for option in seat.case.options:
        part = rng.choice(seat.case.parts_of(seat.role, option)[1:])
        figures = {"cost": rng.randint(3, 30), "worth": rng.randint(3, 60)}
        offers.append({"option": option, "part": list(part.choice), **figures})
    return json.dumps({"offers": offers, "needs": [], "veto": []})


def _random_decision(scenario: Scenario, rng: random.Random) -> str:
    seat = case_of(scenario)
    return decide_at_random(seat.case, seat.table, rng).model_dump_json()


def _random_vote(_scenario: Scenario, rng: random.Random) -> str:
    return json.dumps({"vote": rng.choice(["accept", "object"])})


Baseline = Callable[[Scenario, random.Random], str]


def _seat_family(
    kind: SeatKind,
    role: str,
    verify: Callable[[Scenario, str], Verdict],
    solve: Callable[[Scenario], Answer],
    certify: Callable[[Scenario], tuple[float, float]],
    baselines: Mapping[str, Baseline],
) -> Family:
    return Family(
        name=f"team-{kind}",
        role=role,
        generate=seat_generator(kind),
        verify=verify,
        solve=solve,
        certify=certify,
        call_tool=refuse_tools,
        demonstrate=lambda scenario, _rng: (Step(text=json.dumps(solve(scenario))),),
        baselines=baselines,
    )


_EMPTY_REPORT = '{"offers": [], "needs": [], "veto": []}'
_DECISION_BASELINES: Mapping[str, Baseline] = {
    "random": _random_decision,
    "constant": lambda _scenario, _rng: '{"option": "A", "fund": [], "escalate": false}',
    "greedy": decide_greedily,
}

REPORT = _seat_family(
    "report",
    "specialist",
    judge_report,
    solve_report,
    certify_parts,
    {
        "random": _random_report,
        "constant": lambda _scenario, _rng: _EMPTY_REPORT,
        "greedy": report_best_singles,
    },
)
DECISION = _seat_family(
    "decision", RECONCILER, judge_decision, solve_decision, certify_funding, _DECISION_BASELINES
)
VOTE = _seat_family(
    "vote",
    "specialist",
    judge_vote,
    solve_vote,
    certify_parts,
    {
        "random": _random_vote,
        "constant": lambda _scenario, _rng: '{"vote": "accept"}',
        "greedy": vote_by_own_part,
    },
)
VALUE = _seat_family("value", RECONCILER, judge_value, solve_decision, certify_value, _DECISION_BASELINES)

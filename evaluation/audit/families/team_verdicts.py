"""Presents the team's four verdicts as families, the one thing that probes know.

`report`, `decision` and `vote` are the seats' own verdicts; `value` is V of the team reward.
"""

import json
import random
from collections.abc import Callable, Mapping
from fractions import Fraction

from evaluation.audit.families.team_seats import SeatKind, case_of, recheck_utilities, seat_generator
from evaluation.audit.records import Answer
from roles.team import NO_OPTION, RECONCILER
from scenarios.base import Family, Scenario, Step, ToolCall, ToolError, Verdict, rejected
from scenarios.team import (
    decision_value,
    parse_decision,
    verify_decision,
    verify_report,
    verify_vote,
)
from scenarios.team.case import favourite
from scenarios.team.practices import best_decision, best_report, best_vote
from scenarios.team.texts import open_options


def judge_report(scenario: Scenario, text: str) -> Verdict:
    """Return the specialist's own verdict."""
    return verify_report(case_of(scenario).case, scenario.role, text)


def judge_decision(scenario: Scenario, text: str) -> Verdict:
    """ReconcileGPT's own verdict on the reports that it has."""
    seat = case_of(scenario)
    return verify_decision(seat.case, seat.reports, text)


def judge_vote(scenario: Scenario, text: str) -> Verdict:
    """Return the voter's own verdict."""
    seat = case_of(scenario)
    return verify_vote(seat.case, seat.role, seat.decision, text)


def judge_value(scenario: Scenario, text: str) -> Verdict:
    """V of the team reward, as if it were a verdict."""
    seat = case_of(scenario)
    decision = parse_decision(seat.case, text)
    if decision is None:
        return rejected("not_json", "no decision")
    value = decision_value(seat.case, decision)
    return Verdict(
        reward=value,
        parts={"value": value},
        exact=value == 1.0,
        feasible=value > 0,
        explanation=f"value {value:.2f}",
        failure=None if value == 1.0 else "suboptimal",
    )


def _write_report(scenario: Scenario, practice: str) -> Answer:
    report = best_report(case_of(scenario).case.seats[scenario.role], practice)
    return report.model_dump()


def _write_decision(scenario: Scenario, practice: str) -> Answer:
    seat = case_of(scenario)
    return best_decision(seat.case.options, seat.reports, practice).model_dump()


def _decide(option: str | None) -> Answer:
    return {"option": option or NO_OPTION, "escalate": option is None}


def solve_vote(scenario: Scenario) -> Answer:
    """Return the right vote."""
    seat = case_of(scenario)
    return {"vote": best_vote(seat.case, seat.role, seat.decision)}


def solve_value(scenario: Scenario) -> Answer:
    """Return the decision of greatest value, which no report shows for certain."""
    return _decide(case_of(scenario).truth["best"])


def certify_utilities(scenario: Scenario) -> tuple[float, float]:
    """Utility of the seat's favourite, and the greatest one recomputed from its structures."""
    seat = case_of(scenario)
    stated = seat.case.seats[seat.role].facts["utilities"]
    again = recheck_utilities(seat.split, seat.seed, seat.index, seat.difficulty, seat.role)
    return float(stated[favourite(seat.case.seats[seat.role])]), float(max(again.values()))


def certify_picks(scenario: Scenario) -> tuple[float, float]:
    """Picks that the headcount decision has, and the most that any open option has."""
    seat = case_of(scenario)
    picks = [report.pick for report in seat.reports.values() if report is not None]
    still_open = open_options(seat.case.options, seat.reports)
    chosen = best_decision(seat.case.options, seat.reports, "headcount").option
    return float(picks.count(chosen)), float(max(map(picks.count, still_open), default=0))


def certify_value(scenario: Scenario) -> tuple[float, float]:
    """Return the best value as stated, and in fractions from utilities recomputed from all structures."""
    case = case_of(scenario).case
    total = sum(seat.facts["stakes"] for seat in case.seats.values())
    worth = dict.fromkeys(case.options, Fraction(0))
    for role, seat in case.seats.items():
        again = recheck_utilities(case.split, case.seed, case.index, case.difficulty, role)
        for option in [option for option in worth if again[option] < seat.facts["limit"]]:
            del worth[option]
        for option in worth:
            worth[option] += Fraction(seat.facts["stakes"] * again[option], total)
    best = scenario.truth["best"]
    return scenario.truth["value"][best] if best else 0.0, float(max(worth.values(), default=Fraction(0)))


def refuse_tools(_scenario: Scenario, _call: ToolCall) -> str:
    """Refuse every call: the seats of a joint episode have no tools.

    Raises:
        ToolError: always.
    """
    raise ToolError("no tools here")


def report_favourite(scenario: Scenario, _rng: random.Random) -> str:
    """Return the seat's favourite, not pressed for; vetoes where utility and limit differ in their tens."""
    seat = case_of(scenario).case.seats[scenario.role]
    tens = seat.facts["limit"] // 10
    vetoes = [option for option, utility in seat.facts["utilities"].items() if utility // 10 < tens]
    return json.dumps({"pick": favourite(seat), "flag": 0, "veto": vetoes})


def decide_by_loudness(scenario: Scenario, _rng: random.Random) -> str:
    """Return the open option with the largest sum of flags, the first of equals."""
    seat = case_of(scenario)
    loudness = dict.fromkeys(open_options(seat.case.options, seat.reports), 0)
    for report in seat.reports.values():
        if report is not None and report.pick in loudness:
            loudness[report.pick] += report.flag
    return json.dumps(_decide(max(loudness, key=loudness.__getitem__, default=None)))


def vote_by_tens(scenario: Scenario, _rng: random.Random) -> str:
    """Object to no decision, and to an option whose utility has fewer tens than the seat's limit."""
    seat = case_of(scenario)
    facts = seat.case.seats[seat.role].facts
    option = seat.decision.option if seat.decision is not None else None
    is_bad = option is None or facts["utilities"][option] // 10 < facts["limit"] // 10
    return json.dumps({"vote": "object" if is_bad else "accept"})


def _random_report(scenario: Scenario, rng: random.Random) -> str:
    options = scenario.facts["options"]
    return json.dumps({"pick": rng.choice(options), "flag": rng.randint(0, 3), "veto": []})


def _random_decision(scenario: Scenario, rng: random.Random) -> str:
    return json.dumps(_decide(rng.choice(scenario.facts["options"])))


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


REPORT = _seat_family(
    "report",
    "specialist",
    judge_report,
    lambda scenario: _write_report(scenario, "stakes"),
    certify_utilities,
    {
        "random": _random_report,
        "constant": lambda _scenario, _rng: '{"pick": "A", "flag": 0, "veto": []}',
        "greedy": report_favourite,
    },
)
DECISION = _seat_family(
    "decision",
    RECONCILER,
    judge_decision,
    lambda scenario: _write_decision(scenario, "priority"),
    certify_picks,
    {
        "random": _random_decision,
        "constant": lambda _scenario, _rng: '{"option": "A", "escalate": false}',
        "greedy": decide_by_loudness,
    },
)
VOTE = _seat_family(
    "vote",
    "specialist",
    judge_vote,
    solve_vote,
    certify_utilities,
    {
        "random": _random_vote,
        "constant": lambda _scenario, _rng: '{"vote": "accept"}',
        "greedy": vote_by_tens,
    },
)
VALUE = _seat_family(
    "value",
    RECONCILER,
    judge_value,
    solve_value,
    certify_value,
    {
        "random": _random_decision,
        "constant": lambda _scenario, _rng: '{"option": "A", "escalate": false}',
        "greedy": decide_by_loudness,
    },
)

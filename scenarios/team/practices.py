"""Experts of several practices play a joint case; each practice is equally right by its role's own reward.

Which combination serves the team best is what only joint training can find out. An early word of every
demonstration names the practice.
"""

import json
import random
from collections.abc import Sequence
from typing import Literal

from roles.team import NO_OPTION, Decision, SpecialistReport
from scenarios.base import Step
from scenarios.team.case import Seat, favourite, own_vetoes
from scenarios.team.conventions import HOUSE, LARGEST_FLAG, Conventions
from scenarios.team.playable import PlayableCase
from scenarios.team.texts import Reports, open_options, speaking_order

PracticeKind = Literal["report", "decision"]


def sample_practice(rng: random.Random, kind: PracticeKind, conventions: Conventions = HOUSE) -> str:
    """One practice, by the shares of experts who hold it."""
    shares = conventions.report_shares if kind == "report" else conventions.decision_shares
    return rng.choices(list(shares), weights=list(shares.values()))[0]


def report_basis(seat: Seat, practice: str, conventions: Conventions = HOUSE) -> int:
    """The number that the practice flags by: the favourite's utility, or the seat's stakes.

    Raises:
        UserError: unknown practice.
    """
    by_stakes = conventions.report_practice(practice).basis == "stakes"
    return int(seat.facts["stakes"] if by_stakes else max(seat.facts["utilities"].values()))


def report_flag(seat: Seat, practice: str, conventions: Conventions = HOUSE) -> int:
    """0 to 3: how many of the practice's thresholds its number reaches; 3 less that where it mirrors."""
    basis, chosen = report_basis(seat, practice, conventions), conventions.report_practice(practice)
    reached = sum(basis >= threshold for threshold in chosen.flag_from)
    return LARGEST_FLAG - reached if chosen.is_mirrored else reached


def best_report(seat: Seat, practice: str, conventions: Conventions = HOUSE) -> SpecialistReport:
    """What an expert of this practice reports."""
    flag = report_flag(seat, practice, conventions)
    return SpecialistReport(pick=favourite(seat), flag=flag, veto=own_vetoes(seat))


def expert_report(scenario: PlayableCase, role: str, practice: str) -> Step:
    """For example 'stakes B 83\\n{"pick": "B", "flag": 3, "veto": ["C"]}': practice, pick, its number."""
    seat, conventions = scenario.seats[role], scenario.conventions
    report = best_report(seat, practice, conventions)
    answer = json.dumps(report.model_dump())
    return Step(text=f"{practice} {report.pick} {report_basis(seat, practice, conventions)}\n{answer}")


def best_decision(
    options: Sequence[str], reports: Reports, practice: str, conventions: Conventions = HOUSE
) -> Decision:
    """What an expert of this practice decides on these reports."""
    return _decide(options, reports, practice, conventions)[0]


def expert_decision(
    options: Sequence[str], reports: Reports, practice: str, conventions: Conventions = HOUSE
) -> Step:
    """For example 'priority cto B 3\\n{"option": "B", "escalate": false}'."""
    decision, reason = _decide(options, reports, practice, conventions)
    return Step(text=f"{practice} {reason}\n{json.dumps(decision.model_dump())}")


def _decide(
    options: Sequence[str], reports: Reports, practice: str, conventions: Conventions
) -> tuple[Decision, str]:
    """The decision, and what the practice looked at.

    Most picks, then the first letter; or the pick with the highest (lowest) flag, then the first to speak.
    Among open options only.

    Raises:
        UserError: unknown practice.
    """
    rule = conventions.decision_practice(practice).rule
    still_open = open_options(options, reports)
    if not still_open:
        return Decision(option=NO_OPTION, escalate=True), NO_OPTION
    picks = dict.fromkeys(still_open, 0)
    heard = []
    for role in speaking_order(reports):
        report = reports[role]
        if report is not None and report.pick in picks:
            heard.append((role, report))
            picks[report.pick] += 1
    if rule == "most picks":
        chosen = max(still_open, key=picks.__getitem__)
        return Decision(option=chosen, escalate=False), " ".join(f"{o} {n}" for o, n in picks.items())
    if not heard:
        return Decision(option=still_open[0], escalate=False), f"{NO_OPTION} 0"
    extreme = max if rule == "highest flag" else min
    role, report = extreme(heard, key=lambda pair: pair[1].flag)
    return Decision(option=report.pick, escalate=False), f"{role} {report.pick} {report.flag}"


def best_vote(scenario: PlayableCase, role: str, decision: Decision | None) -> Literal["accept", "object"]:
    """Object where there is no decision or it breaks the specialist's own hard limit."""
    if decision is None or (not decision.escalate and decision.option not in scenario.options):
        return "object"
    return "object" if decision.option in own_vetoes(scenario.seats[role]) else "accept"


def expert_vote(scenario: PlayableCase, role: str, decision: Decision | None) -> Step:
    """For example '{"vote": "accept"}'."""
    return Step(text=json.dumps({"vote": best_vote(scenario, role, decision)}))

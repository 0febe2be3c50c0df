"""Strict parsing of what the team's seats write, and each seat's own verdict (role-local, not the team's)."""

from typing import Literal

from roles.base import AnswerError, parse_answer
from roles.team import NO_OPTION, Decision, SpecialistReport, Vote
from scenarios.base import Verdict, rejected
from scenarios.team.case import TeamScenario, favourite, own_vetoes
from scenarios.team.playable import PlayableCase
from scenarios.team.practices import best_decision, best_vote, report_flag
from scenarios.team.texts import Reports, open_options

CONTRADICTIONS_COUNT_FROM = 3  # difficulty from which a report that picks what its own seat vetoes earns 0


def _read_report(scenario: PlayableCase, text: str) -> SpecialistReport:
    report = parse_answer(text, SpecialistReport)
    if not {report.pick, *report.veto} <= set(scenario.options):
        raise AnswerError("unknown_id", f"options are {' '.join(scenario.options)}")
    if len(set(report.veto)) != len(report.veto):
        raise AnswerError("duplicate_id", "veto names an option twice")
    return report


def _read_decision(scenario: PlayableCase, text: str) -> Decision:
    decision = parse_answer(text, Decision)
    if decision.option not in (*scenario.options, NO_OPTION):
        raise AnswerError("unknown_id", f"options are {' '.join(scenario.options)} {NO_OPTION}")
    if decision.escalate != (decision.option == NO_OPTION):
        raise AnswerError("inconsistent", f"escalate goes with option {NO_OPTION}, and only with it")
    return decision


def parse_report(scenario: PlayableCase, text: str) -> SpecialistReport | None:
    """The report, or None where it is not strict JSON of the schema about this case's options."""
    try:
        return _read_report(scenario, text)
    except AnswerError:
        return None


def parse_decision(scenario: PlayableCase, text: str) -> Decision | None:
    """The decision, or None: malformed, unknown option, or escalate that disagrees with the option."""
    try:
        return _read_decision(scenario, text)
    except AnswerError:
        return None


def parse_vote(text: str) -> Literal["accept", "object"] | None:
    """The vote, or None where there is none."""
    try:
        return parse_answer(text, Vote).vote
    except AnswerError:
        return None


def verify_report(scenario: TeamScenario, role: str, text: str) -> Verdict:
    """0.6 pick is its own best + 0.2 vetoes right + 0.2 flag of any house practice.

    From difficulty 3: 0 for a pick under the own hard limit. Before, such a pick is wrong like any other.
    """
    try:
        report = _read_report(scenario, text)
    except AnswerError as error:
        return rejected(error.failure, str(error))
    seat = scenario.seats[role]
    vetoes, best = own_vetoes(seat), favourite(seat)
    if report.pick in vetoes and scenario.difficulty >= CONTRADICTIONS_COUNT_FROM:
        return rejected("infeasible", f"{report.pick} is under the own limit (best {best})")
    flags = sorted({report_flag(seat, name, scenario.conventions) for name in scenario.conventions.reports})
    right = (report.pick == best, set(report.veto) == set(vetoes), report.flag in flags)
    parts = dict(zip(("pick", "veto", "flag"), map(float, right), strict=True))
    failure = None if all(right) else "suboptimal" if not right[0] else "wrong_figures"
    return Verdict(
        reward=(6 * parts["pick"] + 2 * parts["veto"] + 2 * parts["flag"]) / 10,
        parts=parts,
        exact=right[0],
        feasible=True,
        explanation=f"best {best}, veto {' '.join(vetoes) or NO_OPTION}, flag {' or '.join(map(str, flags))}",
        failure=failure,
    )


def verify_decision(scenario: TeamScenario, reports: Reports, text: str) -> Verdict:
    """1 where it follows from the reports under any house practice, 0.5 for another open pick, else 0.25.

    0 for an option that a report vetoes and for escalation that the reports do not call for (or lack).
    """
    try:
        decision = _read_decision(scenario, text)
    except AnswerError as error:
        return rejected(error.failure, str(error))
    still_open = open_options(scenario.options, reports)
    if decision.escalate and still_open:
        return rejected("infeasible", f"needless escalation: nobody vetoes {' '.join(still_open)}")
    if not decision.escalate and decision.option not in still_open:
        return rejected(
            "infeasible", f"{decision.option} is vetoed (open: {' '.join(still_open) or NO_OPTION})"
        )
    rules = scenario.conventions
    sound = [best_decision(scenario.options, reports, name, rules).option for name in rules.decisions]
    exact = decision.option in sound
    picked = any(report is not None and report.pick == decision.option for report in reports.values())
    return Verdict(
        reward=1.0 if exact else 0.5 if picked else 0.25,
        parts={"sound": float(exact), "picked": float(exact or picked)},
        exact=exact,
        feasible=True,
        explanation=f"sound decisions on these reports: {' or '.join(sorted(set(sound)))}",
        failure=None if exact else "suboptimal",
    )


def verify_vote(scenario: TeamScenario, role: str, decision: Decision | None, text: str) -> Verdict:
    """1 for the right vote: object where there is no decision or it breaks the role's own hard limit."""
    try:
        vote = parse_answer(text, Vote).vote
    except AnswerError as error:
        return rejected(error.failure, str(error))
    wanted = best_vote(scenario, role, decision)
    return Verdict(
        reward=float(vote == wanted),
        parts={"vote": float(vote == wanted)},
        exact=vote == wanted,
        feasible=True,
        explanation=f"the right vote is {wanted}",
        failure=None if vote == wanted else "suboptimal",
    )

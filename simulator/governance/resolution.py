"""Computes scores, conflicts, risk and escalation from reports, votes and a draft.

No truth and no model is needed: everything here is computed from what the seats wrote.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from roles.team import NO_OPTION, Decision, SpecialistReport
from simulator.conflicts import Conflict, find_conflicts
from simulator.governance.gate.approvals import DecisionType, PlanPart

KPI_FLOOR, WATCHED_KPI_FLOOR = 100, 110  # percent of a seat's hard limit
ROUTINE_RISK, CRITICAL_RISK, MAX_RISK = 2, 8, 12  # routine up to, critical from, at most
RISK_PER_VETO, RISK_PER_SILENT_SEAT, RISK_PER_OBJECTION, RISK_PER_FAILURE = 4, 2, 2, 1
PRESSING_FLAG = 2  # from here on a seat that wanted something else is watched
ACTIONS = {
    "cto": "build the architecture of option {option}",
    "coo": "schedule the work of option {option}",
    "risk": "put the controls of option {option} in place",
    "cost": "contract the price list of option {option}",
}
OTHER_ACTION = "carry out its part of option {option}"

Reports = Mapping[str, SpecialistReport | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """The judgement of a draft.

    Example: resolve(("A", "B"), {"cto": SpecialistReport(pick="B", flag=3, veto=["A"])},
                     Decision(option="B", escalate=False)).decision_type == "routine"
    """

    option: str  # "none" where the case goes to the reviewer
    decision_type: DecisionType
    risk_score: int  # 0 to 12, see `score_risk`
    option_scores: dict[str, int]  # percent of all pressing behind it; 0 where it is out
    conflicts: list[Conflict]
    conditions: list[str]
    watched: list[str]  # seats whose KPI floor is raised
    escalated_because: str  # "" where it is not


def resolve(
    options: Sequence[str],
    reports: Reports,
    decision: Decision | None,
    *,
    objectors: Sequence[str] = (),
    ruled_out: Mapping[str, str] | None = None,
    is_overruling: bool = False,
) -> Resolution:
    """Judge ReconcileGPT's draft, or a reviewer's own choice (`is_overruling`: vetoes then only cost risk).

    `ruled_out`: option -> why execution or the reviewer took it out of the case.
    """
    ruled_out = ruled_out or {}
    reason = "" if is_overruling else _find_reason(options, reports, decision, ruled_out)
    option = NO_OPTION if decision is None or reason else decision.option
    risk = MAX_RISK if option == NO_OPTION else score_risk(reports, option, objectors, ruled_out)
    conflicts = list_conflicts(options, reports)
    watched = [] if option == NO_OPTION else _watch(reports, option, objectors, risk)
    conditions = [f"{role} is watched: its KPI must reach {WATCHED_KPI_FLOOR}" for role in watched]
    conditions += [f"{name} stays out: {why}" for name, why in ruled_out.items()]
    return Resolution(
        option=option,
        decision_type=_classify(option, risk, conflicts),
        risk_score=risk,
        option_scores=score_options(options, reports, ruled_out),
        conflicts=conflicts,
        conditions=conditions + ([f"escalated: {reason}"] if reason else []),
        watched=watched,
        escalated_because=reason,
    )


def score_options(options: Sequence[str], reports: Reports, ruled_out: Mapping[str, str]) -> dict[str, int]:
    """Score each option by its percent of all pressing (1 + flag of each seat that picks it); 0 if out."""
    heard = [report for report in reports.values() if report is not None]
    out = {option for report in heard for option in report.veto} | set(ruled_out)
    total = sum(1 + report.flag for report in heard) or 1
    pressing = {o: sum(1 + report.flag for report in heard if report.pick == o) for o in options}
    return {option: 0 if option in out else 100 * pressing[option] // total for option in options}


def list_conflicts(options: Sequence[str], reports: Reports) -> list[Conflict]:
    """List the reports' conflicts as a proposal shows them, those over a hard limit first."""
    return sorted(find_conflicts(options, reports), key=lambda conflict: not conflict.is_hard)


def score_risk(reports: Reports, option: str, objectors: Sequence[str], ruled_out: Mapping[str, str]) -> int:
    """Score the option's risk, 0 to 12.

    4 per veto of the option, 2 per seat without a report, the flags of seats that picked another option,
    2 per objection, 1 per option that was ruled out before.
    """
    score = RISK_PER_OBJECTION * len(objectors) + RISK_PER_FAILURE * len(ruled_out)
    for report in reports.values():
        if report is None:
            score += RISK_PER_SILENT_SEAT
        else:
            score += RISK_PER_VETO * (option in report.veto)
            score += report.flag * (report.pick != option)
    return min(MAX_RISK, score)


def make_parts(seats: Sequence[str], resolution: Resolution) -> list[PlanPart]:
    """Make one part per seat, none where the case goes to the reviewer."""
    if resolution.option == NO_OPTION:
        return []
    return [
        PlanPart(
            role=role,
            action=ACTIONS.get(role, OTHER_ACTION).format(option=resolution.option),
            kpi_floor=WATCHED_KPI_FLOOR if role in resolution.watched else KPI_FLOOR,
        )
        for role in seats
    ]


def _find_reason(
    options: Sequence[str], reports: Reports, decision: Decision | None, ruled_out: Mapping[str, str]
) -> str:
    """Return why the draft goes to the reviewer; "" where it need not."""
    if decision is None:
        return "ReconcileGPT wrote no valid decision"
    if decision.escalate:
        return "ReconcileGPT hands the case on"
    if decision.option not in options:
        return "the draft names no option of the case"
    if decision.option in ruled_out:
        return f"{decision.option} was ruled out before"
    vetoes = [role for role, report in reports.items() if report and decision.option in report.veto]
    return f"{decision.option} breaks the hard limit of {' '.join(vetoes)}" if vetoes else ""


def _watch(reports: Reports, option: str, objectors: Sequence[str], risk: int) -> list[str]:
    """List the seats to watch: objectors, vetoers, those that pressed for another option; all if critical."""
    return [
        role
        for role, report in reports.items()
        if role in objectors
        or risk >= CRITICAL_RISK
        or (
            report is not None
            and (option in report.veto or (report.pick != option and report.flag >= PRESSING_FLAG))
        )
    ]


def _classify(option: str, risk: int, conflicts: Sequence[Conflict]) -> DecisionType:
    if option == NO_OPTION:
        return "escalation"
    if risk >= CRITICAL_RISK:
        return "critical"
    is_contested = risk > ROUTINE_RISK or any(conflict.is_hard for conflict in conflicts)
    return "contested" if is_contested else "routine"

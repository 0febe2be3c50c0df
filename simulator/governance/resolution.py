"""Computes plan, conflicts, risk and escalation from checked reports, votes and a draft.

No truth and no model is needed: everything here is arithmetic over what the seats reported.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from roles.team import NO_OPTION, Decision
from scenarios.team.funding import choose_best, find_obstacle, list_fundings
from scenarios.team.offers import Table, TabledOffer, offers_on
from scenarios.team.playable import PublicCase
from simulator.conflicts import Conflict, find_conflicts
from simulator.governance.precedents import Precedent
from simulator.governance.proposal import DecisionType, OptionLine, PlanPart

KPI_FLOOR = 100  # percent of a seat's hard limit
MOST_LOST, WATCHED_MOST_LOST = 15, 5  # percent of the plan's worth that one seat may lose without an alert
ROUTINE_RISK, CRITICAL_RISK, MAX_RISK = 2, 8, 12  # routine up to, critical from, at most
RISK_PER_SILENT_SEAT, RISK_PER_OBJECTION, RISK_PER_FAILURE = 2, 2, 1
RISK_PER_NEED, RISK_OF_FALSE_CLAIMS, RISK_OF_FULL_BUDGET = 1, 1, 1
FULL_BUDGET = 90  # percent of the budget from which hardly anything is left to mend with
ACTIONS = {
    "cto": "build {choice} on option {option} for {cost} k$",
    "coo": "staff {choice} on option {option} for {cost} k$",
    "risk": "put {choice} in place on option {option} for {cost} k$",
    "cost": "contract {choice} on option {option} for {cost} k$",
}
OTHER_ACTION = "buy {choice} on option {option} for {cost} k$"
WATCH_ACTION = "buy nothing; keep watch on its limit on option {option}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """The judgement of a draft.

    Example: resolve(public, table, Decision(option="B", fund=["cto"], escalate=False)).worth == 100
    """

    option: str  # "none" where the case goes to the reviewer
    funded: tuple[TabledOffer, ...]
    cost: int  # k$
    worth: int  # k$ by the reports; 0 where the case goes to the reviewer
    decision_type: DecisionType
    risk_score: int  # 0 to 12, see `score_risk`
    options: list[OptionLine]
    conflicts: list[Conflict]  # those over a hard limit first
    conditions: list[str]
    watched: list[str]  # seats that may lose less without an alert


def resolve(
    public: PublicCase,
    table: Table,
    decision: Decision | None,
    *,
    objectors: Sequence[str] = (),
    ruled_out: Mapping[str, str] | None = None,
    num_failures: int = 0,
) -> Resolution:
    """Judge ReconcileGPT's draft on these reports.

    `ruled_out`: option -> why the reviewer took it out of the case. `num_failures`: plans that did not hold.
    """
    ruled_out = ruled_out or {}
    funded: tuple[TabledOffer, ...] = ()
    if decision is not None:
        funded = tuple(one for one in offers_on(table, decision.option) if one.label in decision.fund)
    reason = _find_reason(public, table, decision, funded, ruled_out)
    option = NO_OPTION if decision is None or reason else decision.option
    funded = () if option == NO_OPTION else funded
    cost = sum(offer.cost for offer in funded)
    risk = MAX_RISK
    if option != NO_OPTION:
        risk = score_risk(public, table, funded, objectors, len(ruled_out) + num_failures)
    watched = [] if option == NO_OPTION else [seat for seat in public.seats if seat in objectors]
    conditions = [] if option == NO_OPTION else _list_conditions(table, option, funded, watched)
    conditions += [f"{name} stays out: {why}" for name, why in ruled_out.items()]
    return Resolution(
        option=option,
        funded=funded,
        cost=cost,
        worth=0 if option == NO_OPTION else public.base[option] + sum(offer.worth for offer in funded),
        decision_type=_classify(option, risk, objectors),
        risk_score=risk,
        options=list_option_lines(public, table, ruled_out),
        conflicts=sorted(find_conflicts(public, table), key=lambda conflict: not conflict.is_hard),
        conditions=conditions + ([f"escalated: {reason}"] if reason else []),
        watched=watched,
    )


def list_option_lines(public: PublicCase, table: Table, ruled_out: Mapping[str, str]) -> list[OptionLine]:
    """List the options, each with its best plan by the reports."""
    lines = []
    for letter, option in public.options.items():
        best = choose_best(list_fundings(public, table, letter))
        obstacle = "ruled out" if letter in ruled_out else ""
        if best is None and not obstacle:
            obstacle = find_obstacle(public, table, letter, offers_on(table, letter)) or "no plan is possible"
        plan = None if obstacle else best
        lines.append(
            OptionLine(
                option=letter,
                base=option.base,
                worth=None if plan is None else plan.worth,
                cost=0 if plan is None else plan.cost,
                fund=[] if plan is None else [offer.label for offer in plan.offers],
                obstacle=obstacle,
            )
        )
    return lines


def decide_for(
    public: PublicCase, table: Table, option: str, ruled_out: Mapping[str, str]
) -> Decision | None:
    """Return the decision that a reviewer's own option stands for: its best plan by the reports.

    None where it cannot be run: a hard limit holds for reviewers, too.
    """
    if option == NO_OPTION:
        return Decision(option=NO_OPTION, fund=[], escalate=True)
    for line in list_option_lines(public, table, ruled_out):
        if line.option == option and line.worth is not None:
            return Decision(option=option, fund=line.fund, escalate=False)
    return None


def score_risk(
    public: PublicCase,
    table: Table,
    funded: Sequence[TabledOffer],
    objectors: Sequence[str],
    num_failures: int,
) -> int:
    """Score the plan's risk, 0 to 12.

    2 per seat without a report, 2 per objection, 1 per funded part that a limit hangs on, 1 per seat whose
    claims were struck out, 1 where hardly any money is left, 1 per option ruled out or plan that failed.
    """
    score = RISK_PER_OBJECTION * len(objectors) + RISK_PER_FAILURE * num_failures
    cost = sum(offer.cost for offer in funded)
    score += RISK_OF_FULL_BUDGET * (100 * cost >= FULL_BUDGET * public.budget and cost > 0)
    for seat in public.seats:
        report = table.get(seat)
        score += RISK_PER_SILENT_SEAT if report is None else RISK_OF_FALSE_CLAIMS * bool(report.false_claims)
    score += RISK_PER_NEED * sum(_is_needed(table, offer) for offer in funded)
    return min(MAX_RISK, score)


def make_parts(seats: Sequence[str], resolution: Resolution) -> list[PlanPart]:
    """Make one part per seat, none where the case goes to the reviewer."""
    if resolution.option == NO_OPTION:
        return []
    offers = {offer.seat: offer for offer in resolution.funded}
    return [_make_part(seat, offers.get(seat), resolution) for seat in seats]


def _make_part(seat: str, offer: TabledOffer | None, resolution: Resolution) -> PlanPart:
    choice, cost = ([], 0) if offer is None else (list(offer.choice), offer.cost)
    action = ACTIONS.get(seat, OTHER_ACTION) if choice else WATCH_ACTION
    share = WATCHED_MOST_LOST if seat in resolution.watched else MOST_LOST
    return PlanPart(
        role=seat,
        action=action.format(choice=" and ".join(choice), option=resolution.option, cost=cost)[:500],
        choice=choice,
        cost=cost,
        worth=0 if offer is None else offer.worth,
        kpi_floor=KPI_FLOOR,
        most_lost=max(0, resolution.worth) * share // 100,
    )


def _find_reason(
    public: PublicCase,
    table: Table,
    decision: Decision | None,
    funded: Sequence[TabledOffer],
    ruled_out: Mapping[str, str],
) -> str:
    """Return why the draft goes to the reviewer; "" where it need not."""
    if decision is None:
        return "ReconcileGPT wrote no valid decision"
    if decision.escalate:
        return "ReconcileGPT hands the case on"
    if decision.option not in public.options:
        return "the draft names no option of the case"
    if decision.option in ruled_out:
        return f"{decision.option} was ruled out before"
    if len(funded) != len(decision.fund) or len({offer.seat for offer in funded}) != len(funded):
        return "the draft funds what was not offered"
    return find_obstacle(public, table, decision.option, funded) or ""


def _list_conditions(
    table: Table, option: str, funded: Sequence[TabledOffer], watched: Sequence[str]
) -> list[str]:
    conditions = [
        f"{offer.seat} must deliver {' and '.join(offer.choice)}: {option} breaks its limit without it"
        for offer in funded
        if _is_needed(table, offer)
    ]
    return conditions + [
        f"{seat} objected and is watched: an alert from {WATCHED_MOST_LOST} percent of the worth lost"
        for seat in watched
    ]


def _is_needed(table: Table, offer: TabledOffer) -> bool:
    report = table.get(offer.seat)
    return report is not None and offer.option in report.needs


def _classify(option: str, risk: int, objectors: Sequence[str]) -> DecisionType:
    if option == NO_OPTION:
        return "escalation"
    if risk >= CRITICAL_RISK:
        return "critical"
    return "contested" if risk > ROUTINE_RISK or objectors else "routine"


def assign_duty(
    seats: Sequence[str], parts: Sequence[PlanPart], precedents: Sequence[Precedent]
) -> tuple[list[str], str]:
    """Return the seats that are responsible, those that something is bought for, and who is accountable.

    All seats are responsible where nothing is bought. Accountable is the responsible seat whose KPI fell most
    often in recalled cases: of equals the one with the dearest part, then the first.
    """
    costs = {part.role: part.cost for part in parts if part.choice}
    responsible = [seat for seat in seats if seat in costs] or list(seats)
    fallen = Counter(seat for precedent in precedents for seat in precedent["alerts"])
    return responsible, max(responsible, key=lambda seat: (fallen[seat], costs.get(seat, 0)))

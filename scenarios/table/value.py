"""Values a decision by the structures: V in [0, 1], broken limits, escalation. For the verifier alone."""

from collections.abc import Mapping
from dataclasses import dataclass

from roles.table import PlanDecision
from roles.team import NO_OPTION
from scenarios.company.optimum import plan_worth
from scenarios.company.records import Plan
from scenarios.table.offers import Table, TabledOffer, offers_on
from scenarios.table.scenario import TableScenario


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionValue:
    """What a decision brings about.

    Example: DecisionValue(value=1.0, worth=100, broken_limits=(), over_budget=0, escalation_fault=False)
    """

    value: float  # V in [0, 1]: 0 at a blind feasible plan and below, 1 at the full-information optimum
    worth: int | None  # k$; None where nothing is carried out
    broken_limits: tuple[str, ...]  # seats whose hard limit the plan breaks; all of them without a decision
    over_budget: int  # k$
    escalation_fault: bool  # escalated needlessly, or did not where nothing can be run


def funded_plan(table: Table, decision: PlanDecision) -> Plan:
    """The decision as a plan: labels become the parts that they stand for.

    Labels that are not on the table for this option fund nothing (`parse_decision` refuses them).
    """
    offers: Mapping[str, TabledOffer] = {offer.label: offer for offer in offers_on(table, decision.option)}
    funded = [offers[label] for label in decision.fund if label in offers]
    return Plan(option=decision.option, funded={offer.seat: offer.choice for offer in funded})


def decision_value(scenario: TableScenario, table: Table, decision: PlanDecision | None) -> DecisionValue:
    """What the decision on these reports is worth by the structures.

    No decision is worth 0 and leaves every limit broken, so that silence is never better than a bad plan.
    Escalating is worth 1 where no option can be run within the budget, and 0 elsewhere.
    """
    optimum = scenario.optimum
    if decision is None:
        return DecisionValue(
            value=0.0,
            worth=None,
            broken_limits=scenario.seats,
            over_budget=0,
            escalation_fault=optimum is None,
        )
    if decision.escalate or decision.option == NO_OPTION:
        right = optimum is None
        return DecisionValue(
            value=float(right), worth=None, broken_limits=(), over_budget=0, escalation_fault=not right
        )
    plan = funded_plan(table, decision)
    broken = tuple(seat for seat in scenario.seats if breaks_limit(scenario, seat, plan))
    cost = sum(_part_cost(scenario, seat, plan) for seat in scenario.seats)
    over = max(0, cost - scenario.case.budget)
    worth = plan_worth(scenario.case, plan)
    if optimum is None or broken or over:
        value = 0.0
    else:
        blind = scenario.truth["blind"]
        value = min(1.0, max(0.0, float((worth - blind) / (optimum.worth - blind))))
    return DecisionValue(
        value=value, worth=worth, broken_limits=broken, over_budget=over, escalation_fault=optimum is None
    )


def breaks_limit(scenario: TableScenario, seat: str, plan: Plan) -> bool:
    """Whether the plan breaks the seat's hard limit."""
    choice = plan.funded.get(seat, ())
    part = next(part for part in scenario.parts_of(seat, plan.option) if part.choice == choice)
    return not part.keeps_limit


def _part_cost(scenario: TableScenario, seat: str, plan: Plan) -> int:
    choice = plan.funded.get(seat, ())
    return next(part.cost for part in scenario.parts_of(seat, plan.option) if part.choice == choice)

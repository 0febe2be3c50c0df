"""Values a decision by the structures: V in [0, 1], broken limits, escalation. For the verifier alone."""

from collections.abc import Mapping
from dataclasses import dataclass

from roles.team import NO_OPTION, Decision
from scenarios.company.optimum import plan_parts, plan_worth, scale_worth
from scenarios.company.records import Plan
from scenarios.team.offers import Table, TabledOffer, offers_on
from scenarios.team.scenario import TeamScenario


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionValue:
    """Outcome of a decision.

    Example: DecisionValue(value=1.0, worth=100, broken_limits=(), over_budget=0, escalation_fault=False)
    """

    value: float  # V in [0, 1]: 0 at a blind feasible plan and below, 1 at the full-information optimum
    worth: int | None  # k$; None where nothing is carried out
    broken_limits: tuple[str, ...]  # seats whose hard limit the plan breaks; all of them without a decision
    over_budget: int  # k$
    escalation_fault: bool  # escalated needlessly, or did not where nothing can be run


def funded_plan(table: Table, decision: Decision) -> Plan:
    """The decision as a plan: labels become the parts that they stand for.

    Labels that are not on the table for this option fund nothing (`read_decision` refuses them).
    """
    offers: Mapping[str, TabledOffer] = {offer.label: offer for offer in offers_on(table, decision.option)}
    funded = [offers[label] for label in decision.fund if label in offers]
    return Plan(option=decision.option, funded={offer.seat: offer.choice for offer in funded})


def decision_value(scenario: TeamScenario, table: Table, decision: Decision | None) -> float:
    """V in [0, 1] of the decision on these reports; see `judge_decision`."""
    return judge_decision(scenario, table, decision).value


def judge_decision(scenario: TeamScenario, table: Table, decision: Decision | None) -> DecisionValue:
    """Worth of the decision on these reports, by the structures.

    No decision is worth 0 and leaves every limit broken, so that silence is never better than a bad plan.
    Escalating is worth 1 where no option can be run within the budget, and 0 elsewhere.
    """
    optimum = scenario.optimum
    if decision is None:
        return DecisionValue(
            value=0.0,
            worth=None,
            broken_limits=tuple(scenario.seats),
            over_budget=0,
            escalation_fault=optimum is None,
        )
    if decision.escalate or decision.option == NO_OPTION:
        right = optimum is None
        return DecisionValue(
            value=float(right), worth=None, broken_limits=(), over_budget=0, escalation_fault=not right
        )
    plan = funded_plan(table, decision)
    parts = plan_parts(scenario.case, plan)
    broken = tuple(part.seat for part in parts if not part.keeps_limit)
    over = max(0, sum(part.cost for part in parts) - scenario.case.budget)
    worth = plan_worth(scenario.case, plan)
    value = 0.0
    if optimum is not None and not broken and not over:
        value = scale_worth(worth, scenario.truth["blind"], optimum.worth)
    return DecisionValue(
        value=value,
        worth=worth,
        broken_limits=broken,
        over_budget=over,
        escalation_fault=optimum is None,
    )

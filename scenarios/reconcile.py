"""The reconcile family: which option to choose and what to fund on it, given the checked reports of experts.

Asked: option, funded offers, whether to escalate, and the seats that favour other options (conflicts).
Right is the plan of the greatest worth that can be run by the reports; of equal worth the cheaper; escalating
where none can be run. An answer earns 0.6 for its worth over a blind plan's, 0.3 for the best plan, 0.1 for
the share of seats told rightly as conflicts or not; a plan that cannot be run and needless escalation earn 0.
Certified by dynamic programming over money (`scenarios.funding.question`). No term for a fair share: any that
changes the best plan would train against the team's value, any other is implied by the plan.
"""

import random
from collections.abc import Sequence
from typing import Any

from roles.base import AnswerError
from roles.reconcile import MAX_CALLS
from roles.team import Decision
from scenarios.base import Family, Scenario, Split, Step, Style, ToolCall, Verdict, rejected
from scenarios.company.setting import find_sector
from scenarios.funding.baselines import (
    answer_first_option,
    answer_greedily,
    answer_honestly,
    answer_randomly,
)
from scenarios.funding.demonstrations import demonstrate
from scenarios.funding.question import (
    Question,
    answer_of,
    draw_question,
    find_best_again,
    read_question,
)
from scenarios.funding.texts import write_brief
from scenarios.headroom import blind_baseline, share_of_room
from scenarios.team.funding import choose_best, find_obstacle, list_all_fundings, list_conflicts, make_funding
from scenarios.team.offers import offers_on
from scenarios.team.reading import read_decision
from scenarios.team.tools import call_reconciler_tool


def generate(style: Style, split: Split, seed: int, index: int, difficulty: int) -> Scenario:
    """One scenario; a pure function of its coordinates.

    Raises:
        ValueError: coordinates out of range.
    """
    facts = draw_question(split, seed, index, difficulty)
    question = read_question(facts)
    plans = list_all_fundings(question.public, question.table)
    best = choose_best(plans)
    truth = {
        **answer_of(question, best),
        "worth": best.worth if best else None,
        "cost": best.cost if best else None,
        "blind": list(blind_baseline([plan.worth for plan in plans], difficulty)) if plans else None,
    }
    return Scenario(
        family="reconcile",
        split=split,
        seed=seed,
        index=index,
        difficulty=difficulty,
        role="reconcile",
        brief=write_brief(facts, style),
        facts=facts,
        truth=truth,
        optimal_tool_calls=len(demonstrate(question, style)) - 1,
    )


def solve(scenario: Scenario) -> dict[str, Any]:
    """The oracle's answer."""
    return {key: scenario.truth[key] for key in ("option", "fund", "escalate", "conflicts")}


def verify(scenario: Scenario, text: str) -> Verdict:
    """Reward 0.6 head-room over a blind plan + 0.3 best plan + 0.1 conflicts right; 0 if it cannot be run."""
    question, truth = read_question(scenario.facts), scenario.truth
    try:
        decision = read_decision(question.public, question.table, text)
        _check_conflicts(question, decision)
    except AnswerError as error:
        return rejected(error.failure, str(error))
    if decision.escalate or truth["escalate"]:
        if decision.escalate != truth["escalate"]:
            why = "some plan can be run" if decision.escalate else "no plan can be run: escalate"
            return rejected("infeasible", why)
        return _weigh(1.0, True, _share_right(question, decision.conflicts, ()), "escalated, rightly")
    offers = [offer for offer in offers_on(question.table, decision.option) if offer.label in decision.fund]
    obstacle = find_obstacle(question.public, question.table, decision.option, offers)
    if obstacle is not None:
        return rejected("infeasible", obstacle)
    plan = make_funding(question.public, decision.option, offers)
    exact = (plan.worth, plan.cost) == (truth["worth"], truth["cost"])
    numerator, denominator = truth["blind"]
    graded = share_of_room(plan.worth, truth["worth"], (numerator, denominator))
    right = _share_right(
        question, decision.conflicts, list_conflicts(question.public, question.table, decision.option)
    )
    best = f"best: {truth['option']} worth {truth['worth']} at cost {truth['cost']}"
    return _weigh(graded, exact, right, f"worth {plan.worth} at cost {plan.cost} ({best})")


def _check_conflicts(question: Question, decision: Decision) -> None:
    conflicts = decision.conflicts
    if "conflicts" not in decision.model_fields_set:
        raise AnswerError("schema", "conflicts: missing")
    unknown = [seat for seat in conflicts if seat not in question.public.seats]
    if unknown:
        raise AnswerError("unknown_id", f"conflicts: {unknown[0][:40]!r} is no seat")
    if len(set(conflicts)) != len(conflicts):
        raise AnswerError("duplicate_id", "conflicts names one seat twice")


def _share_right(question: Question, named: Sequence[str], wanted: Sequence[str]) -> float:
    seats = question.public.seats
    return sum((seat in named) == (seat in wanted) for seat in seats) / len(seats)


def _weigh(graded: float, exact: bool, conflicts: float, explanation: str) -> Verdict:
    conflicts = conflicts if graded else 0.0
    return Verdict(
        reward=(6 * graded + 3 * exact + conflicts) / 10,
        parts={"graded": graded, "exact": float(exact), "conflicts": conflicts},
        exact=exact,
        feasible=True,
        explanation=explanation,
        failure=None if exact else "suboptimal",
    )


def certify(scenario: Scenario) -> tuple[float, float]:
    """Worth and cost of the oracle's plan as one number, and of the best plan by the second method."""
    truth, again = scenario.truth, find_best_again(read_question(scenario.facts))
    return _rank(truth["worth"], truth["cost"]), _rank(*again) if again else -1.0


def _rank(worth: int | None, cost: int | None) -> float:
    return -1.0 if worth is None or cost is None else 1000.0 * worth - cost


def call_tool(scenario: Scenario, call: ToolCall) -> str:
    """total(option, fund) or sheet(), from the reports alone.

    Raises:
        ToolError: unknown tool, option or label, or arguments of another form.
    """
    question = read_question(scenario.facts)
    return call_reconciler_tool(question.public, question.table, call)


def _build(style: Style) -> Family:
    def play(scenario: Scenario, rng: random.Random) -> tuple[Step, ...]:
        return demonstrate(read_question(scenario.facts), style)

    return Family(
        name="reconcile",
        role="reconcile",
        generate=lambda split, seed, index, difficulty: generate(style, split, seed, index, difficulty),
        verify=verify,
        solve=solve,
        certify=certify,
        call_tool=call_tool,
        demonstrate=play,
        baselines={
            "random": answer_randomly,
            "constant": answer_first_option,
            "greedy": answer_greedily,
            "honest": answer_honestly,
        },
        max_calls=MAX_CALLS,
        find_sector=find_sector,
    )


FAMILY, SHORT_FAMILY = _build("full"), _build("short")

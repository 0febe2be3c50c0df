"""Demonstrations of the reconcile family: the sheet, and what beats its best plan.

Both use what a reader of the reports knows by then: sums over the offers and what the tools have said. In one
case in ten the plan that beats the sheet takes more than one exchange: there its sums alone are shown.
"""

import json

from scenarios.base import Step, Style, ToolCall
from scenarios.funding.question import Question, answer_of
from scenarios.team.funding import Funding, choose_best, list_all_fundings, make_funding, rank_options
from scenarios.team.offers import offers_on
from scenarios.team.tools import write_favours


def name_plan(plan: Funding) -> str:
    """The plan in a few words.

    Example: "B cto risk 71"
    """
    return " ".join((plan.option, *(offer.label for offer in plan.offers), str(plan.worth)))


def add_up(question: Question, plan: Funding) -> str:
    """The sums behind a plan's worth and cost.

    Example: "B cto risk: worth 26 + 21 + 20 = 67, cost 8 + 13 = 21"
    """
    base = question.public.base[plan.option]
    worths = " + ".join(str(term) for term in (base, *(offer.worth for offer in plan.offers)))
    costs = " + ".join(str(offer.cost) for offer in plan.offers)
    if len(plan.offers) == 0:
        return f"{plan.option} alone: worth {base}"
    cost = costs if len(plan.offers) == 1 else f"{costs} = {plan.cost}"
    labels = " ".join(offer.label for offer in plan.offers)
    return f"{plan.option} {labels}: worth {worths} = {plan.worth}, cost {cost}"


def list_swaps(question: Question, plan: Funding) -> list[tuple[str, Funding]]:
    """Every offer of the plan's option that is worth more than a funded one in whose place it may stand.

    Each with what the exchange comes to, in words, and the plan after it, dear or not.
    """
    budget, swaps = question.public.budget, []
    for offer in offers_on(question.table, plan.option):
        for funded in plan.offers:
            kept = [one for one in plan.offers if one is not funded]
            report = question.table[funded.seat]
            is_needed = report is not None and plan.option in report.needs
            if (
                offer in plan.offers
                or offer.worth <= funded.worth
                or any(one.seat == offer.seat for one in kept)
                or (is_needed and offer.seat != funded.seat)
            ):
                continue
            swap = make_funding(question.public, plan.option, [*kept, offer])
            text = (
                f"{offer.label} for {funded.label}: cost {plan.cost} - {funded.cost} + {offer.cost}"
                f" = {swap.cost} of {budget}: "
            )
            if swap.cost > budget:
                text += "over"
            else:
                text += f"fits, worth {plan.worth} - {funded.worth} + {offer.worth} = {swap.worth}"
            swaps.append((text, swap))
    return swaps


def _ask_total(plan: Funding, text: str) -> Step:
    fund = [offer.label for offer in plan.offers]
    return Step(text=text, call=ToolCall(name="total", arguments={"option": plan.option, "fund": fund}))


def _answer(question: Question, plan: Funding | None) -> Step:
    lines = [f"best {name_plan(plan)}" if plan else "none can be run"]
    if plan is not None:
        lines.insert(0, write_favours(question.public, question.table))
    return Step(text="\n".join([*lines, json.dumps(answer_of(question, plan))]))


def improve_sheet(question: Question) -> tuple[Step, ...]:
    """Reads the sheet, compares its plans, exchanges offers of the best one, totals a plan that beats it."""
    public, table = question.public, question.table
    ranked = rank_options(public, table, "return")
    worths = {option: plan.worth for option, plan in ranked if plan is not None}
    leader = ranked[0][1] if ranked else None
    best = choose_best(list_all_fundings(public, table))
    lines = []
    if leader is not None:
        shown = ", ".join(f"{option} {worths[option]}" for option in public.options if option in worths)
        lines.append(f"{shown}: best {name_plan(leader)}")
        swaps = list_swaps(question, leader)
        lines += [text for text, _ in swaps]
        found = choose_best([leader, *(plan for _, plan in swaps if plan.cost <= public.budget)])
    else:
        found = None
    steps = [Step(text="", call=ToolCall(name="sheet", arguments={}))]
    if best is not None and (leader is None or _rank(best) > _rank(leader)):
        if found is None or _rank(best) > _rank(found):
            lines.append(f"better {add_up(question, best)}")
        steps.append(_ask_total(best, "\n".join(lines)))
        lines = []
    answer = _answer(question, best)
    return (*steps, Step(text="\n".join([*lines, answer.text])))


def _rank(plan: Funding) -> tuple[int, int]:
    return plan.worth, -plan.cost


def read_sheet(question: Question) -> tuple[Step, ...]:
    """Takes the best plan as the short brief lists it, and names the way of funding that led to it."""
    best = choose_best(list_all_fundings(question.public, question.table))
    return (Step(text=f"exact\n{json.dumps(answer_of(question, best))}"),)


def demonstrate(question: Question, style: Style) -> tuple[Step, ...]:
    """The demonstration; in short style the brief lists the best plans."""
    return read_sheet(question) if style == "short" else improve_sheet(question)

"""Demonstrations of the reconcile family: the sheet, and what beats its best plan.

Both use what a reader of the reports knows by then: sums over the offers and what the tools have said. In one
case in ten the plan that beats the sheet takes more than one exchange: there its sums alone are shown.
"""

import json

from scenarios.base import Step, Style, ToolCall
from scenarios.funding.question import Question, answer_of
from scenarios.team.funding import (
    Funding,
    choose_best,
    fund_in_order,
    list_all_fundings,
    list_conflicts,
    make_funding,
)
from scenarios.team.offers import offers_on


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


def compare_options(question: Question) -> tuple[list[str], Funding | None]:
    """What is said of the sheet's plans, a line per option, and the best of them.

    Both numbers come before the word for how they compare: a model writes from left to right.
    """
    lines: list[str] = []
    best: Funding | None = None
    for option in question.public.options:
        plan = fund_in_order(question.public, question.table, option, by_return=True)
        if plan is None:
            lines.append(f"{option}: cannot be run")
            continue
        said, is_better = f"{option}: worth {plan.worth}", best is None
        if best is not None:
            is_better = _rank(plan) > _rank(best)
            said += f" to {best.worth}: "
            if plan.worth == best.worth:
                said += f"equal, cost {plan.cost} to {best.cost}: {'less' if is_better else 'no less'}"
            else:
                said += "more" if is_better else "less"
        if is_better:
            best = plan
            said += f", best {name_plan(plan)}"
        lines.append(said)
    return lines, best


def list_exchanges(question: Question, plan: Funding) -> list[tuple[str, Funding | None]]:
    """Every offer of the plan's option that may stand in a funded one's place, compared with that one.

    Each in words, with the plan after the exchange where that is worth more and can be run.
    """
    budget, exchanges = question.public.budget, []
    for offer in offers_on(question.table, plan.option):
        for funded in plan.offers:
            kept = [one for one in plan.offers if one is not funded]
            report = question.table[funded.seat]
            is_needed = report is not None and plan.option in report.needs
            if (
                offer in plan.offers
                or any(one.seat == offer.seat for one in kept)
                or (is_needed and offer.seat != funded.seat)
            ):
                continue
            said = f"{offer.label} for {funded.label}: worth {offer.worth} to {funded.worth}: "
            after: Funding | None = None
            if offer.worth <= funded.worth:
                said += "no more"
            else:
                after = make_funding(question.public, plan.option, [*kept, offer])
                costs = f"{plan.cost} - {funded.cost} + {offer.cost} = {after.cost}"
                said += f"more, cost {costs} of {budget}: "
                if after.cost > budget:
                    said, after = f"{said}over", None
                else:
                    said += f"fits, worth {plan.worth} - {funded.worth} + {offer.worth} = {after.worth}"
            exchanges.append((said, after))
    return exchanges


def _ask_total(plan: Funding, text: str) -> Step:
    fund = [offer.label for offer in plan.offers]
    return Step(text=text, call=ToolCall(name="total", arguments={"option": plan.option, "fund": fund}))


def _answer(question: Question, plan: Funding | None) -> str:
    answer = json.dumps(answer_of(question, plan))
    if plan is None:
        return f"none can be run\n{answer}"
    against = list_conflicts(question.public, question.table, plan.option)
    favours = (f"{seat} {'no' if seat in against else 'yes'}" for seat in question.public.seats)
    return f"best {name_plan(plan)}\nfavour {plan.option}: {', '.join(favours)}\n{answer}"


def improve_sheet(question: Question) -> tuple[Step, ...]:
    """Reads the sheet, compares its plans, exchanges offers of the best one, totals a plan that beats it."""
    steps = [Step(text="", call=ToolCall(name="sheet", arguments={}))]
    lines, leader = compare_options(question)
    exchanges = list_exchanges(question, leader) if leader is not None else []
    lines += [said for said, _ in exchanges]
    found = choose_best([plan for plan in (leader, *(after for _, after in exchanges)) if plan is not None])
    best = choose_best(list_all_fundings(question.public, question.table))
    if best is not None and (leader is None or _rank(best) > _rank(leader)):
        if found is None or _rank(best) > _rank(found):
            lines.append(f"better {add_up(question, best)}")
        steps.append(_ask_total(best, "\n".join(lines)))
        lines = []
    return (*steps, Step(text="\n".join([*lines, _answer(question, best)])))


def _rank(plan: Funding) -> tuple[int, int]:
    return plan.worth, -plan.cost


def read_sheet(question: Question) -> tuple[Step, ...]:
    """Takes the best plan as the short brief lists it, and names the way of funding that led to it."""
    best = choose_best(list_all_fundings(question.public, question.table))
    return (Step(text=f"exact\n{json.dumps(answer_of(question, best))}"),)


def demonstrate(question: Question, style: Style) -> tuple[Step, ...]:
    """The demonstration; in short style the brief lists the best plans."""
    return read_sheet(question) if style == "short" else improve_sheet(question)

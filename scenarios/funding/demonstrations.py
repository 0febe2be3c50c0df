"""Demonstrations of the reconcile family: search by totals, the sheet and what beats it, reckoning.

Each uses what a reader of the reports knows by then: sums over the offers and what the tools have said.
"""

import json
import random
from collections.abc import Callable, Sequence
from itertools import product

from scenarios.base import Step, Style, ToolCall
from scenarios.funding.question import Question, answer_of
from scenarios.team.funding import Funding, best_in_order, choose_best, list_all_fundings, make_funding
from scenarios.team.offers import offers_on
from scenarios.team.tools import write_favours

MOST_TOTALS = 8  # that a search asks for; where it needs more, the other ways are shown alone

Way = Callable[[], tuple[Step, ...]]


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


def list_candidates(question: Question) -> list[Funding]:
    """Every plan with what its option needs, dear or not: greatest worth first, then the cheaper."""
    plans = []
    for option in question.public.base:
        choices = []
        for seat, report in question.table.items():
            assert report is not None
            own = [offer for offer in offers_on(question.table, option) if offer.seat == seat]
            if option in report.veto:
                own = []
            elif option not in report.needs:
                own = [*own, None]  # type: ignore[list-item]
            choices.append(own)
        plans += [
            make_funding(question.public, option, [offer for offer in picks if offer is not None])
            for picks in product(*choices)
        ]
    return sorted(plans, key=lambda plan: (-plan.worth, plan.cost))


def _ask_total(plan: Funding, text: str) -> Step:
    fund = [offer.label for offer in plan.offers]
    return Step(text=text, call=ToolCall(name="total", arguments={"option": plan.option, "fund": fund}))


def _answer(question: Question, plan: Funding | None) -> Step:
    lines = [f"best {name_plan(plan)}" if plan else "none can be run"]
    if plan is not None:
        lines.insert(0, write_favours(question.public, question.table))
    return Step(text="\n".join([*lines, json.dumps(answer_of(question, plan))]))


def count_totals(question: Question) -> int:
    """Totals that a search asks for: as far as the best plan, or over all where none can be run."""
    candidates = list_candidates(question)
    runs = (number for number, plan in enumerate(candidates, start=1) if plan.cost <= question.public.budget)
    return next(runs, len(candidates))


def search(question: Question) -> tuple[Step, ...]:
    """Asks for the totals of plans, the greatest worth first, until one can be run: no other is better."""
    steps: list[Step] = []
    for plan in list_candidates(question):
        steps.append(_ask_total(plan, "over the budget, next" if steps else ""))
        if plan.cost <= question.public.budget:
            return (*steps, _answer(question, plan))
    return (*steps, _answer(question, None))


def improve_sheet(question: Question) -> tuple[Step, ...]:
    """Reads the sheet; adds up the plans that are worth more than its best; totals the best that fits."""
    leader = best_in_order(question.public, question.table, by_return=True)
    best = choose_best(list_all_fundings(question.public, question.table))
    steps = [Step(text="", call=ToolCall(name="sheet", arguments={}))]
    if leader is not None and best is not None and (best.worth, -best.cost) > (leader.worth, -leader.cost):
        steps.append(_ask_total(best, f"sheet {name_plan(leader)}; better {add_up(question, best)}"))
    return (*steps, _answer(question, best))


def read_sheet(question: Question) -> tuple[Step, ...]:
    """Takes the best plan as the short brief lists it, and names the way of funding that led to it."""
    best = choose_best(list_all_fundings(question.public, question.table))
    return (Step(text=f"exact\n{json.dumps(answer_of(question, best))}"),)


def reckon(question: Question) -> tuple[Step, ...]:
    """Adds up the best plan of every option, has the best of them totalled."""
    found = []
    for option in question.public.base:
        runs = [plan for plan in list_all_fundings(question.public, question.table) if plan.option == option]
        plan = choose_best(runs)
        found.append(add_up(question, plan) if plan else f"{option} cannot be run")
    best = choose_best(list_all_fundings(question.public, question.table))
    text = "; ".join(found)
    if best is None:
        last = _answer(question, None)
        return (Step(text=f"{text}\n{last.text}"),)
    return (_ask_total(best, text), _answer(question, best))


def list_ways(question: Question, style: Style) -> Sequence[Way]:
    """The demonstrations that there are; in short style the brief lists the best plans."""
    if style == "short":
        return [lambda: read_sheet(question)]
    ways: list[Way] = [lambda: improve_sheet(question), lambda: reckon(question)]
    if 0 < count_totals(question) <= MOST_TOTALS:
        ways.append(lambda: search(question))
    return ways


def demonstrate(question: Question, style: Style, rng: random.Random) -> tuple[Step, ...]:
    """One demonstration, its way drawn from the rng."""
    return rng.choice(list_ways(question, style))()


def count_most_calls(question: Question, style: Style) -> int:
    """Tool calls of the longest demonstration."""
    return max(len(way()) - 1 for way in list_ways(question, style))

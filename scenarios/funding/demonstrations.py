"""Demonstrations of the reconcile family: the sheet, and what beats its best plan.

Both use what a reader of the reports knows by then: sums over the offers and what the tools have said.
"""

import json

from scenarios.base import Step, Style, ToolCall
from scenarios.company.comparison import beats
from scenarios.funding.question import Question, answer_of
from scenarios.team.funding import Funding, choose_best, list_all_fundings, list_conflicts
from scenarios.team.texts.comparing import explain_best, name_plan


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
    best = choose_best(list_all_fundings(question.public, question.table))
    lines, leader = explain_best(question.public, question.table, best)
    if best is not None and beats(best, leader):
        steps.append(_ask_total(best, "\n".join(lines)))
        lines = []
    return (*steps, Step(text="\n".join([*lines, _answer(question, best)])))


def read_sheet(question: Question) -> tuple[Step, ...]:
    """Takes the best plan as the short brief lists it, and names the way of funding that led to it."""
    best = choose_best(list_all_fundings(question.public, question.table))
    return (Step(text=f"exact\n{json.dumps(answer_of(question, best))}"),)


def demonstrate(question: Question, style: Style) -> tuple[Step, ...]:
    """The demonstration; in short style the brief lists the best plans."""
    return read_sheet(question) if style == "short" else improve_sheet(question)

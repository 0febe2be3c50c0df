"""Demonstrations of a part question: a search by measuring, or where parts are many a reckoning.

None uses more than the expert has read by then: the search lists every part that the amount allows and
measures them in turn, the reckoning applies the rules to the described structure and has its result measured.
In short style the tool describe lists the efficient parts, and the dearest within the amount is taken.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from scenarios.base import Step, Style, ToolCall
from scenarios.company.domain import Domain
from scenarios.company.parts.question import (
    Question,
    code_parts,
    find_best,
    list_affordable,
    list_parts,
)
from scenarios.company.records import Part

MOST_MEASURED = 8  # parts that a search measures; where there are more, reckoning is shown
NUM_CANDIDATES = 3  # that a reckoning names


def answer_of(part: Part) -> dict[str, Any]:
    """The part as an answer object."""
    return {"part": list(part.choice), "cost": part.cost, "worth": part.worth}


def _name(part: Part) -> str:
    return " + ".join(part.choice) if part.choice else "nothing"


def _measure(question: Question, part: Part, text: str) -> Step:
    arguments = {"option": question.option, "part": list(part.choice)}
    return Step(text=text, call=ToolCall(name="measure", arguments=arguments))


def list_searched(parts: Sequence[Part], amount: int) -> list[Part]:
    """Choices that a search measures, singles first: all that the amount allows, but no empty one."""
    within = [part for part in parts if part.cost <= amount and part.choice]
    return sorted(within, key=lambda part: len(part.choice))


def _work_out(part: Part, alone: Mapping[tuple[str, ...], int]) -> str:
    """The sum that is the part's cost; nothing where a rule makes it another."""
    costs = [alone[(name,)] for name in part.choice]
    if sum(costs) != part.cost:
        return ""
    return f"{' + '.join(map(str, costs))} = {part.cost}" if len(costs) > 1 else str(part.cost)


def search(question: Question, parts: Sequence[Part]) -> tuple[Step, ...]:
    """Lists the parts within the amount with their costs, measures each and keeps the best so far."""
    steps: list[Step] = []
    best = parts[0] if parts[0].keeps_limit else None
    searched = list_searched(parts, question.amount)
    alone: dict[tuple[str, ...], int] = {part.choice: part.cost for part in parts if len(part.choice) == 1}
    listed = "; ".join(f"{_name(part)} {_work_out(part, alone)}".rstrip() for part in searched)
    text = f"Within {question.amount}: {listed}."
    for part in searched:
        steps.append(_measure(question, part, text))
        if part.keeps_limit and (best is None or (part.worth, -part.cost) > (best.worth, -best.cost)):
            best = part
        text = f"best {_name(best)} {best.worth}" if best else "no part keeps the limit yet"
    assert best is not None
    return (*steps, Step(text=f"{text}\n{json.dumps(answer_of(best))}"))


def reckon(question: Question, parts: Sequence[Part]) -> tuple[Step, ...]:
    """Reads the description, works out the best parts by the rules, has the best one measured."""
    within = list_affordable(parts, question.amount)
    ranked = sorted(within, key=lambda part: (-part.worth, part.cost))
    named = "; ".join(
        f"{_name(part)} costs {part.cost}, is worth {part.worth}" for part in ranked[:NUM_CANDIDATES]
    )
    best = find_best(parts, question.amount)
    describe = ToolCall(name="describe", arguments={"option": question.option})
    return (
        Step(text="", call=describe),
        _measure(question, best, f"By the rules, within {question.amount}: {named}."),
        Step(text=f"best {_name(best)} {best.worth}\n{json.dumps(answer_of(best))}"),
    )


def look_up(domain: Domain, question: Question) -> tuple[Step, ...]:
    """Has the efficient parts listed and takes the dearest within the amount, by its code."""
    describe = ToolCall(name="describe", arguments={"option": question.option})
    within = [item for item in code_parts(domain, question).items() if item[1].cost <= question.amount]
    code, best = within[-1]
    return (Step(text="", call=describe), Step(text=json.dumps({**answer_of(best), "part": [code]})))


def list_ways(domain: Domain, question: Question, style: Style) -> list[Callable[[], tuple[Step, ...]]]:
    """The ways to the best part, the plainest one last; in short style the efficient parts are looked up."""
    if style == "short":
        return [lambda: look_up(domain, question)]
    parts = list_parts(domain, question)
    ways: list[Callable[[], tuple[Step, ...]]] = [lambda: reckon(question, parts)]
    if 0 < len(list_searched(parts, question.amount)) <= MOST_MEASURED:
        ways.append(lambda: search(question, parts))
    return ways


def demonstrate(domain: Domain, question: Question, style: Style) -> tuple[Step, ...]:
    """A search where parts are few: a small model cannot learn the sums of a reckoning from its result."""
    return list_ways(domain, question, style)[-1]()


def count_most_calls(domain: Domain, question: Question, style: Style) -> int:
    """Tool calls of the longest way."""
    return max(len(way()) - 1 for way in list_ways(domain, question, style))

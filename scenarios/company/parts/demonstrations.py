"""Demonstrations of a part question: a search by measuring, or where parts are many a reckoning.

None uses more than the expert has read by then, and no step leaves out what leads to it, which a small model
cannot make up: the search adds up every part, says whether it fits, measures those that do and compares each
with the best so far. The reckoning applies the rules to the described structure and has its result measured.
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
MOST_LISTED = 12  # parts that it adds up
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


def list_weighed(parts: Sequence[Part], amount: int) -> list[Part]:
    """Choices that a search adds up: those that it measures, and dearer ones made of such alone."""
    within = {frozenset(part.choice) for part in list_searched(parts, amount)}
    possible = {frozenset(part.choice) for part in parts}

    def is_weighed(part: Part) -> bool:
        choice = frozenset(part.choice)
        smaller = {choice - {name} for name in choice} - {frozenset()}
        return choice in within or smaller & possible <= within

    return sorted(
        (part for part in parts if part.choice and is_weighed(part)), key=lambda part: len(part.choice)
    )


def _weigh(part: Part, alone: Mapping[tuple[str, ...], int], amount: int) -> str:
    """The sum that is the part's cost, and whether the amount allows it; a rule may take some off."""
    costs = [alone[(name,)] for name in part.choice]
    total = " + ".join(map(str, costs))
    if rule := part.cost - sum(costs):
        total += f" {'+' if rule > 0 else '-'} {abs(rule)}"
    if len(costs) > 1:
        total += f" = {part.cost}"
    return f"{_name(part)} {total} {'fits' if part.cost <= amount else 'over'}"


def _compare(part: Part, best: Part | None) -> tuple[str, Part | None]:
    """What is said of a part that was measured, and the best one then."""
    if not part.keeps_limit:
        return ("breaks the limit, " if best else "breaks the limit; no part keeps it yet"), best
    if best is None:
        return "", part
    if part.worth == best.worth:
        return f"{part.worth} = {best.worth}, ", min(best, part, key=lambda one: one.cost)
    sign = ">" if part.worth > best.worth else "<"
    return f"{part.worth} {sign} {best.worth}, ", max(best, part, key=lambda one: one.worth)


def search(question: Question, parts: Sequence[Part]) -> tuple[Step, ...]:
    """Adds parts up, measures those within the amount and compares each with the best so far."""
    steps: list[Step] = []
    best: Part | None = None  # an amount buys more worth than nothing has
    alone: dict[tuple[str, ...], int] = {part.choice: part.cost for part in parts if len(part.choice) == 1}
    weighed = [_weigh(part, alone, question.amount) for part in list_weighed(parts, question.amount)]
    text = f"Within {question.amount}: {'; '.join(weighed)}."
    for part in list_searched(parts, question.amount):
        steps.append(_measure(question, part, text))
        said, best = _compare(part, best)
        text = f"{said}best {_name(best)} {best.worth}" if best else said
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
    searched, weighed = list_searched(parts, question.amount), list_weighed(parts, question.amount)
    if 0 < len(searched) <= MOST_MEASURED and len(weighed) <= MOST_LISTED:
        ways.append(lambda: search(question, parts))
    return ways


def demonstrate(domain: Domain, question: Question, style: Style) -> tuple[Step, ...]:
    """A search where parts are few: a small model cannot learn the sums of a reckoning from its result."""
    return list_ways(domain, question, style)[-1]()


def count_most_calls(domain: Domain, question: Question, style: Style) -> int:
    """Tool calls of the longest way."""
    return max(len(way()) - 1 for way in list_ways(domain, question, style))

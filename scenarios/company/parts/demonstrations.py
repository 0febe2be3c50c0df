"""Demonstrations of a part question: a search by measuring, or where parts are many a reckoning.

None uses more than the expert has read by then, and no step leaves out what leads to it, which a small model
cannot make up: the search measures parts and compares the cost of each with the amount and its worth with the
best so far; no sum is done in the head. The reckoning applies the rules to the described structure to find
which parts are worth a measurement, and states no figure that was not measured. In short style the tool
describe lists the efficient parts, and the dearest within the amount is taken.
"""

import json
from collections.abc import Collection, Sequence
from typing import Any

from scenarios.base import Step, Style, ToolCall
from scenarios.company.comparison import beats, compare_in_words
from scenarios.company.domain import Domain
from scenarios.company.parts.question import (
    PartQuestion,
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


def measure(option: str, names: Sequence[str], text: str) -> Step:
    """A call of measure for the part of these upgrades, after the text."""
    return Step(text=text, call=ToolCall(name="measure", arguments={"option": option, "part": list(names)}))


def list_searched(parts: Sequence[Part], amount: int) -> list[Part]:
    """Parts that a search measures, few upgrades first: those within the amount, and what such can make.

    None where they are more than MOST_MEASURED.
    """
    within = {frozenset(part.choice) for part in parts if part.cost <= amount}
    possible = {frozenset(part.choice) for part in parts}

    def is_searched(part: Part) -> bool:
        choice = frozenset(part.choice)
        smaller = {choice - {name} for name in choice}
        return choice in within or smaller & possible <= within

    searched = [part for part in parts if part.choice and is_searched(part)]
    return sorted(searched, key=lambda part: len(part.choice)) if len(searched) <= MOST_MEASURED else []


def _compare(part: Part, best: Part | None, amount: int) -> tuple[str, Part | None]:
    """Return what is said of a part that was measured, and the best one then."""
    if part.cost > amount:
        return f"cost {part.cost} of {amount}: over", best
    within = f"cost {part.cost} of {amount}: fits"
    if not part.keeps_limit:
        return f"{within}, breaks the limit", best
    if best is None:
        return within, part
    return f"{within}, {compare_in_words(part, best)}", part if beats(part, best) else best


def search_option(
    option: str,
    amount: int,
    searched: Sequence[Part],
    lead: str = "",
    known: Collection[Sequence[str]] = (),
) -> tuple[tuple[Step, ...], str, Part | None]:
    """Measure single upgrades, then what can be made of those that fit; keep the best so far.

    `lead` is said before the first measurement; parts that are `known` by their upgrades were measured before
    and are compared by name. Returns: the steps, what is said after the last one, the best part; None where
    none fits and keeps the limit.
    """
    steps: list[Step] = []
    best: Part | None = None
    text = lead and f"{lead}\n"
    for part in searched:
        if part.choice in known:
            text += f"{_name(part)}: "
        else:
            steps.append(measure(option, part.choice, text.removesuffix("\n")))
            text = ""
        said, after = _compare(part, best, amount)
        if after is not None and after is not best:
            said, best = f"{said}, best {_name(after)} {after.worth}", after
        text += f"{said}\n"
    return tuple(steps), text.removesuffix("\n"), best


def search(question: PartQuestion, searched: Sequence[Part]) -> tuple[Step, ...]:
    """The search, and the best part as the answer."""
    steps, text, best = search_option(question.option, question.amount, searched)
    assert best is not None  # an amount buys more worth than nothing has
    return (*steps, Step(text=f"{text}\n{json.dumps(answer_of(best))}"))


def reckon(question: PartQuestion, parts: Sequence[Part]) -> tuple[Step, ...]:
    """Reads the description, names the best parts by the rules, has them measured and compares them."""
    within = list_affordable(parts, question.amount)
    ranked = sorted(
        within, key=lambda part: (-part.worth, part.cost, part != find_best(parts, question.amount))
    )
    candidates = [part for part in ranked if part.choice][:NUM_CANDIDATES]
    named = "; ".join(map(_name, candidates))
    describe = Step(text="", call=ToolCall(name="describe", arguments={"option": question.option}))
    lead = f"By the rules, for at most {question.amount}: {named}."
    steps, text, best = search_option(question.option, question.amount, candidates, lead)
    assert best is not None  # the best part is the first that is measured
    return (describe, *steps, Step(text=f"{text}\n{json.dumps(answer_of(best))}"))


def look_up(domain: Domain, question: PartQuestion) -> tuple[Step, ...]:
    """Has the efficient parts listed and takes the dearest within the amount, by its code."""
    describe = ToolCall(name="describe", arguments={"option": question.option})
    within = [item for item in code_parts(domain, question).items() if item[1].cost <= question.amount]
    code, best = within[-1]
    return (Step(text="", call=describe), Step(text=json.dumps({**answer_of(best), "part": [code]})))


def demonstrate(domain: Domain, question: PartQuestion, style: Style) -> tuple[Step, ...]:
    """A search where parts are few, else a reckoning; in short style the efficient parts are looked up."""
    if style == "short":
        return look_up(domain, question)
    parts = list_parts(domain, question)
    searched = list_searched(parts, question.amount)
    return search(question, searched) if searched else reckon(question, parts)


def count_most_calls(domain: Domain, question: PartQuestion, style: Style) -> int:
    """Tool calls of the demonstration, and two at least in full style: a look and a measurement."""
    num_calls = len(demonstrate(domain, question, style)) - 1
    return num_calls if style == "short" else max(2, num_calls)

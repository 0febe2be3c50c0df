"""Texts of the part families in two styles; the system message of `full` is the mandate in `roles`."""

from collections.abc import Mapping
from typing import Any, assert_never

from scenarios.base import Style
from scenarios.company.domain import Domain
from scenarios.company.parts.question import Question, code_parts, read_question
from scenarios.company.records import Part
from scenarios.company.steps import write_parts


def write_brief(domain: Domain, facts: Mapping[str, Any], style: Style) -> str:
    """The user message: the case, its terms, what can be bought, the question."""
    question = read_question(facts)
    if style == "short":
        return f"Option {question.option}. Amount {question.amount}."
    if style != "full":
        assert_never(style)
    offered = domain.write_upgrades(question.structure)
    return "\n".join(
        (
            f"{facts['situation']} Option {question.option} is: {facts['name']}.",
            domain.write_terms(question.terms),
            f"Upgrades on offer, with their cost in k$ a month: {offered}.",
            f"Which part is best on option {question.option} for at most {question.amount} k$ a month?",
        )
    )


def write_measured(domain: Domain, part: Part, style: Style) -> str:
    """The observation of the tool measure."""
    if style == "short":
        return f"cost {part.cost} worth {part.worth} {'ok' if part.keeps_limit else 'breaks the limit'}"
    if style != "full":
        assert_never(style)
    limit = "hard limit holds" if part.keeps_limit else "hard limit BREAKS"
    return f"{domain.write_figures(part.figures)}; cost {part.cost}, worth {part.worth}; {limit}"


def describe_option(domain: Domain, question: Question, style: Style) -> str:
    """The observation of the tool describe: the whole structure, or in short style the efficient parts alone.

    Example (short): "F 6 5, G 15 10"
    """
    if style == "full":
        return domain.describe(question.structure)
    return write_parts(code_parts(domain, question))

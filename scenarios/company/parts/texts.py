"""Texts of the part families in two styles; the system message of `full` is the mandate in `roles`."""

from collections.abc import Mapping
from typing import Any, assert_never

from scenarios.base import Style
from scenarios.company.domain import Domain, write_terms
from scenarios.company.parts.question import PartQuestion, code_parts, read_question
from scenarios.company.records import Part
from scenarios.company.steps import write_parts

WORDINGS = (  # by wording, the lines of a full brief
    (
        "{situation} Option {option} is: {name}.",
        "{terms}",
        "Upgrades on offer, with their cost in k$ a month: {offered}.",
        "Which part is best on option {option} for at most {amount} k$ a month?",
    ),
    (
        "{situation} It may choose option {option}: {name}.",
        "What can be bought for it, at a cost in k$ a month: {offered}.",
        "{terms}",
        "You may spend up to {amount} k$ a month on option {option}. Choose the best part.",
    ),
    (
        "{situation}",
        "Suppose that it takes option {option}, {name}.",
        "{terms}",
        "Price list of the upgrades, in k$ a month: {offered}.",
        "The table leaves you no more than {amount} k$ a month for option {option}. What do you buy?",
    ),
    (
        "{situation}",
        "Its option {option}: {name}.",
        "{terms}",
        "With no more than {amount} k$ a month for option {option}, find the part that is worth most.",
        "On offer, each with its cost in k$ a month: {offered}.",
    ),
    (
        "{situation} You look at option {option} and nothing else: {name}.",
        "Upgrades, priced in k$ a month: {offered}.",
        "Not more than {amount} k$ a month may go into option {option}.",
        "{terms}",
        "Name the part that you want.",
    ),
)


def write_brief(domain: Domain, facts: Mapping[str, Any], style: Style) -> str:
    """The user message: the case, its terms, what can be bought, the question."""
    question = read_question(facts)
    if style == "short":
        return f"Option {question.option}. Amount {question.amount}."
    if style != "full":
        assert_never(style)
    offered = domain.write_upgrades(question.structure)
    return "\n".join(WORDINGS[facts["wording"]]).format(
        situation=facts["situation"],
        option=question.option,
        name=facts["name"],
        amount=question.amount,
        offered=offered,
        terms=write_terms(domain, question.terms, facts["wording"], [question.structure]),
    )


def write_measured(domain: Domain, part: Part, style: Style) -> str:
    """The observation of the tool measure."""
    if style == "short":
        return f"cost {part.cost} worth {part.worth} {'ok' if part.keeps_limit else 'breaks the limit'}"
    if style != "full":
        assert_never(style)
    limit = "hard limit holds" if part.keeps_limit else "hard limit BREAKS"
    return f"{domain.write_figures(part.figures)}; cost {part.cost}, worth {part.worth}; {limit}"


def describe_option(domain: Domain, question: PartQuestion, style: Style) -> str:
    """The observation of the tool describe: the whole structure, or in short style the efficient parts alone.

    Example (short): "F 6 5, G 15 10"
    """
    if style == "full":
        return domain.describe(question.structure)
    return write_parts(code_parts(domain, question))

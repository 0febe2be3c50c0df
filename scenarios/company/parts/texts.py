"""Texts of the part families, in two styles: `full` for any chat model, `short` for models trained on it."""

import json
from collections.abc import Mapping
from typing import Any, Literal, assert_never

from scenarios.company.domain import Domain
from scenarios.company.parts.question import Question, read_question
from scenarios.company.records import Part

Style = Literal["full", "short"]

TITLES = {"cto": "CTO", "coo": "COO", "risk": "Chief Risk Officer", "cost": "Cost Officer"}
EXAMPLES: dict[str, dict[str, Any]] = {  # of a case that no sector tells
    "cto": {"part": ["spare lamp drive", "faster fog sensor"], "cost": 13, "worth": 22},
    "coo": {"part": ["overtime Wilma", "extra shift lens grinding"], "cost": 12, "worth": 18},
    "risk": {"part": ["storm shutters", "lamp watch"], "cost": 11, "worth": 25},
    "cost": {"part": ["committed lamp oil", "premium rope"], "cost": 10, "worth": 19},
}


def write_system(domain: Domain, style: Style, max_calls: int) -> str:
    """The system message: the task, every rule that the best part depends on, tools, schema with an "
    "example."""
    example = json.dumps(EXAMPLES[domain.seat])
    if style == "short":
        return (
            f"{TITLES[domain.seat]}. Find the part of most worth within the amount that keeps the limit; of "
            f"equal worth the cheaper. describe(option), measure(option, part). Answer like {example}"
        )
    if style != "full":
        assert_never(style)
    return "\n".join(
        (
            f"You are the {TITLES[domain.seat]} of a company. You know the {domain.subject} of every option "
            "that the company can take. You are asked about one option and one amount of money: find the "
            "best part of a plan that you could have funded there.",
            "A part is any set of the upgrades on offer; the empty set buys nothing. Its cost is the sum "
            "of the costs of its upgrades, unless a rule below says otherwise. Its worth is what the "
            "figures with the part are worth, less what the figures are worth when nothing is bought. All "
            "money is in k$ a month; a single payment counts with its share of a month.",
            "The best part costs at most the amount, keeps your hard limit, and has the greatest worth of "
            "all such parts; of equal worth the cheaper one. A part that costs more or breaks the hard "
            "limit counts nothing. Money that is left is worth nothing.",
            f"Rules of the figures. {domain.rules}",
            "Tools: describe(option) shows the whole structure of the option and what every upgrade does; "
            "measure(option, part) tells the exact figures, the cost and the worth of a part and whether "
            f"your hard limit holds. You may call tools {max_calls} times in all.",
            "End with one JSON object with exactly these keys: part (list of names of upgrades as they are "
            "written in the question, in any order, each at most once; [] buys nothing), cost (whole k$), "
            f"worth (whole k$). Nothing may follow it. Example of an answer in another case: {example}",
        )
    )


def write_brief(domain: Domain, facts: Mapping[str, Any], style: Style) -> str:
    """The user message: the case, its terms, what can be bought, the question."""
    question = read_question(facts)
    offered = domain.write_upgrades(question.structure)
    if style == "short":
        return (
            f"{facts['sector']} option {question.option} {facts['name']}. Amount {question.amount}. "
            f"{domain.write_short_terms(question.terms)}. Upgrades: {offered}."
        )
    if style != "full":
        assert_never(style)
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


def describe_option(domain: Domain, question: Question) -> str:
    """The observation of the tool describe."""
    return domain.describe(question.structure)

"""The brief of the reconcile family in two styles; the reports are written as the team writes them."""

from collections.abc import Mapping
from typing import Any, assert_never

from scenarios.base import Style
from scenarios.funding.question import read_question
from scenarios.team.texts import full, short
from scenarios.team.tools import write_favours

QUESTIONS = (  # by wording
    "Which option is chosen, and which of its offers are funded?",
    "Choose an option and say which of its offers the budget pays for.",
    "What do you decide, and whom do you fund?",
    "Decide for one option and for the offers on it that are funded.",
    "Where does the budget go?",
)


def write_brief(facts: Mapping[str, Any], style: Style) -> str:
    """The user message.

    Example (short): "A 30: cto 9 14, coo 7 10\\nB 26: risk 13 20\\nBudget 40.\\nexact\\nA 54: cto coo\\n..."
    """
    question = read_question(facts)
    if style == "short":
        reports = short.write_decision_brief(question.public, question.table)
        return f"{reports}\n{write_favours(question.public, question.table)}"
    if style != "full":
        assert_never(style)
    reports = full.write_decision_brief(question.public, question.table)
    return f"{reports}\n{QUESTIONS[question.public.wording]}"

"""Briefs in a teacher's words around the oracle's play: kept only if they read back to the same facts.

The reader is that of the audit (`evaluation.audit.brief_facts`): it finds the figures of the seat's rules in
any wording, and refuses what it cannot read with certainty.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from evaluation.audit.brief_facts import RULES, UnreadableBriefError, read_facts
from roles.base import Role
from roles.errors import UserError
from scenarios.base import Family, Scenario, Verdict, rejected
from training.data.folders.rows import Row, describe_case, load_messages, store_messages
from training.data.teacher.lessons import RoleLesson

AUTHOR_PREFIX = "paraphrase:"
MOST_TIMES_AS_LONG = 3
MANDATE = (
    "You rewrite a brief in other words, in another order if you like, as a colleague would put it. Keep "
    "every fact: each figure in digits with its unit, each name of an option or upgrade letter by letter, "
    "the cost right after the name that it belongs to, each limit with its direction (at least, at most), "
    "and the question. One sentence states one kind of figure. Add no figure and no advice. Answer with the "
    "brief alone."
)


def check_can_paraphrase(families: Sequence[str]) -> None:
    """Refuse families whose briefs nothing reads back.

    Raises:
        UserError: names the family and those that can be paraphrased.
    """
    for family in families:
        if family not in RULES:
            raise UserError(
                f"family {family!r}: its brief cannot be paraphrased; name some of {', '.join(RULES)} by "
                "--family"
            )


class ParaphraseLesson(RoleLesson):
    """The play in which a teacher rewrites the brief of a role's scenario; its row is else the oracle's."""

    def __init__(self, scenario: Scenario, family: Family) -> None:
        super().__init__(scenario, family)
        answer, self.instructions = self.role.answer, ""
        self.role = Role(name="paraphrase", title="Editor", mandate=MANDATE, answer=answer, tools=())

    def verify(self, answers: Sequence[str]) -> Verdict:
        return compare_briefs(self.case, answers[-1])

    @cached_property
    def observations(self) -> list[str]:
        return []

    def build_row(self, turns: Sequence[Any], answers: Sequence[str], author: str) -> Row:
        (expected,) = describe_case(self.case)
        return with_brief(expected, answers[-1].strip()) | {"author": author}


def with_brief(row: Row, brief: str) -> Row:
    """The row with another brief as its user message."""
    system, user, *others = load_messages(row["messages"])
    return row | {"brief": brief, "messages": store_messages([system, {**user, "content": brief}, *others])}


def compare_briefs(scenario: Scenario, text: str) -> Verdict:
    """1 where the text states just the facts of the scenario's brief, else 0 with the reason."""
    names = list(scenario.facts["structure"]["upgrades"])
    if len(text) > MOST_TIMES_AS_LONG * len(scenario.brief):
        return rejected("schema", f"more than {MOST_TIMES_AS_LONG} times as long as the brief")
    if scenario.facts["name"].lower() not in text.lower():
        return rejected("wrong_figures", f"the option's name is missing: {scenario.facts['name']}")
    try:
        found = read_facts(scenario.role, text, names)
    except UnreadableBriefError as error:
        return rejected("wrong_figures", str(error))
    if found != read_facts(scenario.role, scenario.brief, names):
        return rejected("wrong_figures", "the facts are not those of the brief")
    return Verdict(reward=1.0, parts={}, exact=True, feasible=True, explanation="the same facts")


def find_paraphrase_fault(row: Row, expected: Row, scenario: Scenario) -> str | None:
    """Fault of a row whose brief a teacher rewrote; None if there is none. `expected` is the oracle's."""
    verdict = compare_briefs(scenario, row["brief"])
    if not verdict.exact:
        return f"brief: {verdict.explanation}"
    same = with_brief(expected, row["brief"])["messages"]
    return None if row["messages"] == same else "messages are not the oracle's after the brief"

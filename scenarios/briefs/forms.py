"""Surface forms of a brief: the same facts as terse lines, prose, a Markdown table or a memo.

A family writes its lines itself and lays its facts out on a sheet for the other forms. Every form states
every fact once, with the same ids, and no sentence begins with an article that could be an option.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from scenarios.base import FORMS, Form, Scenario, scenario_rng
from scenarios.briefs.sectors import SECTORS, VOCABULARIES, Vocabulary

FORMS_FROM = 3  # difficulty; below it every brief is lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One figure of a brief. Example: Fact(label="budget", value="54", sentence="The budget is 54 k$.")"""

    label: str
    value: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One row of a brief's table.

    Example: Record(cells=("K1", "30"), sentence="Control K1 costs 30 k$.")
    """

    cells: tuple[str, ...]
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """What a brief says, apart from its wording.

    Example: Sheet(reader="Risk", sector="bank", subject="trading network", task="Choose controls.",
                   facts=(...), columns=("control", "cost"), records=(...))
    """

    reader: str  # title of the role
    sector: str
    subject: str  # what it is about, in the sector's words
    task: str  # one sentence
    facts: tuple[Fact, ...]
    columns: tuple[str, ...] = ()
    records: tuple[Record, ...] = ()


def choose_form(family: str, split: str, seed: int, index: int, difficulty: int) -> Form:
    """The form of this scenario: lines at difficulty 1 and 2, then any, from a stream of its own."""
    if difficulty < FORMS_FROM:
        return "lines"
    return random.Random(f"{family}/{split}/{seed}/{index}/form").choice(FORMS)


def find_sector(scenario: Scenario) -> str:
    """The sector of a scenario of this package, whose generators all draw it first."""
    return scenario_rng(scenario.family, scenario.split, scenario.seed, scenario.index).choice(SECTORS)


def write_form(sheet: Sheet, form: Form) -> str:
    """The brief in one of the longer forms.

    Raises:
        ValueError: lines, which a family writes itself.
    """
    match form:
        case "prose":
            return _write_prose(sheet)
        case "table":
            return _write_table(sheet)
        case "memo":
            return _write_memo(sheet)
        case "lines":
            raise ValueError("a family writes its lines itself")
        case _:
            assert_never(form)


def vocabulary(sector: str) -> Vocabulary:
    """The sector's words; for a sector from outside, its own name in their place."""
    plain = Vocabulary(company=sector, system="system", project="project", estate="network", order="order")
    return VOCABULARIES.get(sector, plain)


def join_words(words: Sequence[str], last: str = "and") -> str:
    """Example: join_words(["P1", "P2", "P3"]) == "P1, P2 and P3\""""
    return f" {last} ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _write_prose(sheet: Sheet) -> str:
    """One paragraph: task, facts, records."""
    opening = f"This is about the {sheet.subject} of the {vocabulary(sheet.sector).company}."
    return " ".join([opening, sheet.task, *_sentences(sheet.facts), *_sentences(sheet.records)])


def _write_table(sheet: Sheet) -> str:
    """A heading, the facts as a table, the records as another."""
    parts = [
        f"## {sheet.sector.capitalize()}: {sheet.subject}",
        sheet.task,
        _markdown_table(("fact", "value"), [(fact.label, fact.value) for fact in sheet.facts]),
    ]
    if sheet.records:
        parts.append(_markdown_table(sheet.columns, [record.cells for record in sheet.records]))
    return "\n\n".join(parts)


def _write_memo(sheet: Sheet) -> str:
    """An e-mail; records come first and last to first, then the facts, last to first."""
    header = [
        f"From: head office of the {vocabulary(sheet.sector).company}",
        f"To: {sheet.reader}",
        f"Subject: {sheet.subject}",
    ]
    records = [f"- {sentence}" for sentence in _sentences(sheet.records[::-1])]
    facts = " ".join(_sentences(sheet.facts[::-1]))
    return "\n".join([*header, "", sheet.task, *records, "", facts, "", "Kind regards"])


def _sentences(parts: Sequence[Fact | Record]) -> list[str]:
    return [part.sentence for part in parts]


def _markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])

"""A case that a person wrote, as YAML or Markdown with front matter. No truth is known: nothing scores it.

Each seat gives its facts in its own words, or as utilities with stakes and limit, or both. Every mistake in
the file is one message with file, line, field and remedy.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from roles.base import Role
from roles.errors import UserError, unknown
from roles.registry import ROLES
from roles.team import RECONCILER
from scenarios.briefs.team import write_seat_brief
from scenarios.team.case import Seat
from scenarios.team.conventions import HOUSE, Conventions
from scenarios.written.case_text import read_case_text
from scenarios.written.strict_yaml import Located, Place

FIGURES = ("stakes", "limit", "utilities")
REPORT_REQUEST = (
    "Report with one JSON object: pick (an option), flag (0 to 3, how much you press for it), "
    "veto (the options that break your hard limit, [] for none)."
)

Letter = Annotated[str, Field(pattern=r"^[A-Z]$")]
Utility = Annotated[int, Field(ge=10, le=99)]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class SeatNotes(_Part):
    """What one seat knows: facts in words, the three figures, or both.

    Example: SeatNotes(facts="Two of five suppliers are late.", stakes=83, limit=30,
                       utilities={"A": 45, "B": 72})
    """

    facts: str | None = Field(
        None, min_length=1, max_length=4000, description="what the seat knows, in its own words"
    )
    stakes: int | None = Field(
        None, ge=1, le=99, description="how much the case matters to it, a whole number from 1 to 99"
    )
    limit: int | None = Field(
        None, ge=10, le=99, description="the least utility it can live with, a whole number from 10 to 99"
    )
    utilities: dict[Letter, Utility] | None = Field(
        None, description="what each option is worth to it: a whole number from 10 to 99 for every letter"
    )


class CaseFile(_Part):
    """The file as a person writes it.

    Example: CaseFile(title="Where to store our data", options={"A": "Our own rooms", "B": "A cloud"},
                      seats={"cto": SeatNotes(facts="..."), "cost": SeatNotes(facts="...")})
    """

    title: str = Field(min_length=1, max_length=120, description="the question that is decided, in one line")
    sector: str = Field(
        "company",
        pattern=r"^[A-Za-z][A-Za-z -]{1,29}$",
        description="the line of business, letters only, e.g. retail",
    )
    context: str = Field("", max_length=4000, description="what every seat reads before its own facts")
    options: dict[Letter, Annotated[str, Field(min_length=1, max_length=300)]] = Field(
        min_length=2,
        max_length=6,
        description="two to six options: one capital letter each, and what it means in words",
    )
    seats: dict[str, SeatNotes] = Field(
        min_length=2, description="at least two specialists, each with facts or figures of its own"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeCase:
    """A written case, ready to be played. It is no TeamScenario: there is no truth to score it with.

    Example: read_case(Path("examples/payments.yaml")).key == "case/payments/1f0c9a2e"
    """

    key: str  # case/NAME/DIGEST: another text is another case
    title: str
    sector: str
    context: str
    meanings: Mapping[str, str]  # option -> what it means
    notes: Mapping[str, str]  # seat -> its facts in words; only seats that gave some
    seats: Mapping[str, Seat]

    @property
    def options(self) -> tuple[str, ...]:
        return tuple(self.meanings)

    @property
    def conventions(self) -> Conventions:
        """The house's."""
        return HOUSE


def read_case(
    path: Path,
    *,
    roles: Mapping[str, Role] = ROLES,
    figures_only: bool = False,
    case_first: bool = False,
) -> FreeCase:
    """The case in a .yaml, .yml or .md file.

    With `figures_only` a seat that gives figures reads them alone, in the wording that tiny teams are
    trained on; its words are kept for people. With `case_first` every seat's text begins with what all
    seats read, so that engines compute it once. Seats speak in the order of `roles`.

    Raises:
        UserError: not such a file, or a mistake in it; names file, line, field and remedy.
    """
    text, located = read_case_text(path, [name for name in roles if name != RECONCILER])
    written = _parse(located, str(path))
    _check_seats(written, located, str(path), roles)
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    name = re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-") or "case"
    return FreeCase(
        key=f"case/{name}/{digest}",
        title=" ".join(written.title.split()),
        sector=written.sector,
        context=written.context.strip(),
        meanings={letter: " ".join(words.split()) for letter, words in written.options.items()},
        notes={seat: notes.facts.strip() for seat, notes in written.seats.items() if notes.facts},
        seats={
            name: _make_seat(written, roles[name], written.seats[name], figures_only, case_first)
            for name in roles
            if name in written.seats
        },
    )


def _make_seat(written: CaseFile, role: Role, notes: SeatNotes, figures_only: bool, case_first: bool) -> Seat:
    facts: dict[str, Any] = {}
    opening = f"{written.sector.capitalize()} case. {role.title} seat."
    if notes.utilities is not None:
        facts = {
            "utilities": {letter: notes.utilities[letter] for letter in written.options},
            "stakes": notes.stakes,
            "limit": notes.limit,
        }
        opening = write_seat_brief(written.sector, role.title, facts)
        if figures_only or not notes.facts:
            return Seat(brief=opening, facts=facts)
    shared = [" ".join(written.title.split()), written.context.strip()]
    shared += [f"Option {letter}: {' '.join(words.split())}" for letter, words in written.options.items()]
    lines = [*shared, opening] if case_first else [opening, *shared]
    lines += [f"Your facts: {(notes.facts or '').strip()}", REPORT_REQUEST]
    return Seat(brief="\n".join(line for line in lines if line), facts=facts)


def _parse(located: Located, source: str) -> CaseFile:
    if not isinstance(located.value, dict):
        raise UserError(
            f"{source}:1: a case is a mapping of keys; begin with `title: ...`, `options:` and `seats:`"
        )
    try:
        return CaseFile.model_validate(located.value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise _explain(first, located, source) from None


def _check_seats(written: CaseFile, located: Located, source: str, roles: Mapping[str, Role]) -> None:
    """What no single field can tell: seats that exist, figures that fit together.

    Raises:
        UserError: the first mistake.
    """
    known = [name for name in roles if name != RECONCILER]
    for name, notes in written.seats.items():
        where = f"{source}:{located.line_of(('seats', name))}"
        if name not in known:
            raise UserError(f"{where}: {unknown('seat', name, known)}")
        given = [figure for figure in FIGURES if getattr(notes, figure) is not None]
        if not given and notes.facts is None:
            raise UserError(
                f"{where}: seats.{name} says nothing; give it `facts` in words, or {', '.join(FIGURES)}"
            )
        if given and len(given) < len(FIGURES):
            absent = next(figure for figure in FIGURES if figure not in given)
            raise UserError(
                f"{where}: seats.{name}.{absent} is missing: {_describe(SeatNotes, absent)};"
                f" figures go together, or leave them all out and write `facts`"
            )
        if notes.utilities is not None and notes.limit is not None:
            _check_figures(written, located, source, name, notes.utilities, notes.limit)


def _check_figures(
    written: CaseFile, located: Located, source: str, name: str, utilities: Mapping[str, int], limit: int
) -> None:
    place: Place = ("seats", name, "utilities")
    for letter in [*written.options, *utilities]:
        line = located.line_of((*place, letter))
        if letter not in utilities:
            raise UserError(
                f"{source}:{line}: {_name(place)} lacks option {letter}; add `{letter}: ` and a whole"
                f" number from 10 to 99"
            )
        if letter not in written.options:
            known = " ".join(written.options)
            raise UserError(
                f"{source}:{line}: {_name(place)} names option {letter}, which is none of {known};"
                f" remove it or add it under `options`"
            )
    if max(utilities.values()) < limit:
        line = located.line_of(("seats", name, "limit"))
        raise UserError(
            f"{source}:{line}: seats.{name}.limit = {limit} forbids every option (the best is worth"
            f" {max(utilities.values())}); lower it, a seat can live with its favourite"
        )


def _explain(error: ErrorDetails, located: Located, source: str) -> UserError:
    path = tuple(part for part in error["loc"] if part != "[key]")
    where, field = f"{source}:{located.line_of(path)}", _name(path)
    model: type[BaseModel] = SeatNotes if path[:1] == ("seats",) and len(path) > 2 else CaseFile
    key = str(path[2] if model is SeatNotes else path[0])
    if error["type"] == "extra_forbidden":
        return UserError(f"{where}: {unknown('key', str(path[-1]), list(model.model_fields))}")
    if error["type"] == "missing":
        return UserError(f"{where}: {field} is missing: {_describe(model, key)}")
    if "[key]" in error["loc"]:
        return UserError(f"{where}: {field}: an option is named by one capital letter, e.g. `A: ...`")
    problem = error["msg"][0].lower() + error["msg"][1:]
    return UserError(f"{where}: {field} = {_shown(error['input'])}: {problem} ({_describe(model, key)})")


def _describe(model: type[BaseModel], key: str) -> str:
    return model.model_fields[key].description or ""


def _name(path: Place) -> str:
    return ".".join(map(str, path))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."

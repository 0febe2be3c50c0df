"""A case that a person wrote, as YAML or Markdown with front matter. No truth is known: nothing scores it.

Every option has a worth before any spending, the case one budget. A seat gives its facts in its own words, or
lists what it could buy with cost and worth, or both; claims are checked only where it lists. Markdown: YAML
between two `---` lines, then what every seat reads; under `## cto` its facts.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from roles.errors import UserError, unknown
from roles.registry import ROLES
from roles.team import RECONCILER
from scenarios.company.records import Option, Part
from scenarios.team.listed_seat import is_listed, list_parts
from scenarios.team.playable import PublicCase, Seat
from scenarios.written.strict_yaml import Located, Place, parse_located_yaml

MAX_CASE_BYTES = 64 * 1024
YAML_ENDINGS, MARKDOWN_ENDINGS = (".yaml", ".yml"), (".md", ".markdown")
_FENCE = "---"
_STRANGE = re.compile(r"[^\n\t\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
LISTED = ("upgrades", "needs", "veto")
SEATS = [name for name in ROLES if name != RECONCILER]
MAX_UPGRADES = 8  # of one seat on one option

Letter = Annotated[str, Field(pattern=r"^[A-Z]$")]
Name = Annotated[str, Field(pattern=r"^[^\n,+]{1,60}$")]  # the table's texts join names with , and +
Money = Annotated[int, Field(ge=0, le=1_000_000)]
Gain = Annotated[int, Field(ge=-1_000_000, le=1_000_000)]


class _WrittenPart(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Upgrade(_WrittenPart):
    """One thing that a seat could buy on an option.

    Example: Upgrade(cost=9, worth=14)
    """

    cost: Money = Field(description="what it costs, in whole k$")
    worth: Gain = Field(description="what it is worth, in whole k$")


class SeatNotes(_WrittenPart):
    """One seat's knowledge: facts in words, what it could buy, or both.

    Example: SeatNotes(facts="Two suppliers are late.", upgrades={"A": {"second source": Upgrade(...)}},
                       needs={"A": ["second source"]}, veto=["B"])
    """

    facts: str | None = Field(
        None, min_length=1, max_length=4000, description="what the seat knows, in its own words"
    )
    upgrades: dict[Letter, Annotated[dict[Name, Upgrade], Field(max_length=MAX_UPGRADES)]] | None = Field(
        None, description="what it could buy: per option names, each with `cost` and `worth`"
    )
    needs: dict[Letter, Annotated[list[Name], Field(min_length=1)]] | None = Field(
        None, description="per option the upgrades without which it breaks the seat's hard limit"
    )
    veto: list[Letter] | None = Field(
        None, description="the options that break the seat's hard limit whatever it buys"
    )


class OptionNotes(_WrittenPart):
    """One option.

    Example: OptionNotes(name="the hosted switch", base=30)
    """

    name: str = Field(min_length=1, max_length=300, description="what the option means, in words")
    base: Gain = Field(description="what it is worth before any spending, in whole k$")


class CaseFile(_WrittenPart):
    """The file as a person writes it.

    Example: CaseFile(title="Where to store our data", budget=40, options={"A": OptionNotes(...), ...},
                      seats={"cto": SeatNotes(facts="..."), "cost": SeatNotes(facts="...")})
    """

    title: str = Field(min_length=1, max_length=120, description="the question that is decided, in one line")
    sector: str = Field(
        "company",
        pattern=r"^[A-Za-z][A-Za-z -]{1,29}$",
        description="the line of business, letters only, e.g. retail",
    )
    context: str = Field("", max_length=4000, description="what every seat reads before its own facts")
    budget: Money = Field(description="what all seats together may spend, in whole k$")
    options: dict[Letter, OptionNotes] = Field(
        min_length=2,
        max_length=6,
        description="two to six options: one capital letter each, with `name` and `base`",
    )
    seats: dict[str, SeatNotes] = Field(
        min_length=2, description="at least two specialists, each with facts or upgrades of its own"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeCase:
    """A written case, ready to be played. It is no TeamScenario: there is no truth to score it with.

    Example: read_case(Path("examples/payments.yaml")).key == "case/payments/1f0c9a2e"
    """

    key: str  # case/NAME/DIGEST: another text is another case
    title: str
    context: str
    public: PublicCase
    seats: Mapping[str, Seat]

    @property
    def options(self) -> tuple[str, ...]:
        return tuple(self.public.options)

    @property
    def sector(self) -> str:
        return self.public.sector

    @property
    def meanings(self) -> dict[str, str]:
        """Option -> what it means."""
        return {letter: option.name for letter, option in self.public.options.items()}

    @property
    def notes(self) -> dict[str, str]:
        """Seat -> its facts in words; only seats that gave some."""
        return {role: seat.facts["words"] for role, seat in self.seats.items() if "words" in seat.facts}

    def parts_of(self, seat: str, option: str) -> tuple[Part, ...] | None:
        """Every part that the seat can propose on the option, () first; None where it lists none."""
        notes = self.seats[seat]
        return list_parts(notes, option) if is_listed(notes) else None

    def list_unlisted(self) -> list[str]:
        """The seats that give words alone: scripted experts and small models have nothing to offer there."""
        return [role for role, seat in self.seats.items() if not is_listed(seat)]


def read_case(path: Path) -> FreeCase:
    """The case in a .yaml, .yml or .md file. Seats speak in the order of ROLES.

    Raises:
        UserError: not such a file, or a mistake in it; names file, line, field and remedy.
    """
    text, located = _read_case_text(path)
    written = _parse(located, str(path))
    _check_seats(written, located, str(path))
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    name = re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-") or "case"
    title, context = " ".join(written.title.split()), written.context.strip()
    seats = {
        role: Seat(role=role, facts=_list_facts(written.seats[role]))
        for role in SEATS
        if role in written.seats
    }
    return FreeCase(
        key=f"case/{name}/{digest}",
        title=title,
        context=context,
        public=PublicCase(
            sector=written.sector,
            situation="\n".join(filter(None, (title, context))),
            options={
                letter: Option(letter=letter, name=" ".join(option.name.split()), base=option.base)
                for letter, option in written.options.items()
            },
            budget=written.budget,
            seats=tuple(seats),
        ),
        seats=seats,
    )


def _list_facts(notes: SeatNotes) -> dict[str, Any]:
    """The seat's facts as the table's texts and tools know them; what the file leaves out is left out."""
    facts = notes.model_dump(include=set(LISTED), exclude_none=True)
    return facts if notes.facts is None else {"words": notes.facts.strip(), **facts}


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


def _check_seats(written: CaseFile, located: Located, source: str) -> None:
    """Return what no single field can tell: seats that exist, letters and names that fit together.

    Raises:
        UserError: the first mistake.
    """
    for name, notes in written.seats.items():
        where = f"{source}:{located.line_of(('seats', name))}"
        if name not in SEATS:
            raise UserError(f"{where}: {unknown('seat', name, SEATS)}")
        if notes.facts is None and all(getattr(notes, key) is None for key in LISTED):
            raise UserError(
                f"{where}: seats.{name} says nothing; give it `facts` in words, or {', '.join(LISTED)}"
            )
        _check_listed(written, located, source, ("seats", name), notes)


def _check_listed(written: CaseFile, located: Located, source: str, place: Place, notes: SeatNotes) -> None:
    known = " ".join(written.options)
    for key in LISTED:
        for letter in getattr(notes, key) or ():
            if letter not in written.options:
                line = located.line_of((*place, key, letter) if key != "veto" else (*place, key))
                raise UserError(
                    f"{source}:{line}: {_name((*place, key))} names option {letter}, none of {known};"
                    f" remove it or add it under `options`"
                )
    for letter, names in (notes.needs or {}).items():
        offered = (notes.upgrades or {}).get(letter, {})
        for name in names:
            if name not in offered:
                line = located.line_of((*place, "needs", letter))
                raise UserError(
                    f"{source}:{line}: {_name((*place, 'needs', letter))}:"
                    f" {unknown('upgrade', name, list(offered))}; list it under `upgrades`, or use `veto`"
                )


def _explain(error: ErrorDetails, located: Located, source: str) -> UserError:
    path = tuple(part for part in error["loc"] if part != "[key]")
    where, field = f"{source}:{located.line_of(path)}", _name(path)
    model, key = _find_field(path)
    if error["type"] == "extra_forbidden":
        return UserError(f"{where}: {unknown('key', str(path[-1]), list(model.model_fields))}")
    if error["type"] == "missing":
        return UserError(f"{where}: {field} is missing: {_describe(model, key)}")
    if "[key]" in error["loc"]:
        if path[-2] in ("options", "upgrades", "needs"):
            return UserError(f"{where}: {field}: an option is named by one capital letter, e.g. `A: ...`")
        return UserError(
            f"{where}: {field}: an upgrade is named in 1 to 60 characters without comma and plus"
        )
    problem = error["msg"][0].lower() + error["msg"][1:]
    if error["type"] == "model_type":
        problem = "write keys with values"
    return UserError(f"{where}: {field} = {_shown(error['input'])}: {problem} ({_describe(model, key)})")


def _find_field(path: Place) -> tuple[type[BaseModel], str]:
    """The model and the key that a place in the file belongs to."""
    names = list(map(str, path))
    if names[:1] == ["options"] and len(names) > 2:
        return OptionNotes, names[2]
    if names[:1] == ["seats"] and len(names) > 2:
        is_upgrade = names[2] == "upgrades" and len(names) > 5
        return (Upgrade, names[5]) if is_upgrade else (SeatNotes, names[2])
    return CaseFile, names[0]


def _describe(model: type[BaseModel], key: str) -> str:
    return (model.model_fields[key].description or "") if key in model.model_fields else ""


def _name(path: Place) -> str:
    return ".".join(map(str, path))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _read_case_text(path: Path) -> tuple[str, Located]:
    """The file's text, and its keys with their lines; a Markdown body becomes `context` and seats' `facts`.

    Raises:
        UserError: no such file, not a case file, too large, not clean text, or malformed.
    """
    if path.suffix.lower() not in (*YAML_ENDINGS, *MARKDOWN_ENDINGS):
        raise UserError(f"{path}: a case is a .yaml or .md file; rename it, or give another file")
    text = _read_text(path)
    if path.suffix.lower() in MARKDOWN_ENDINGS:
        return text, _read_markdown(text, str(path))
    return text, _with_hint(text, str(path))


def _read_text(path: Path) -> str:
    try:
        if not path.is_file():
            raise UserError(f"no case file {path}; see examples/ for some")
        with path.open("rb") as file:
            data = file.read(MAX_CASE_BYTES + 1)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    if len(data) > MAX_CASE_BYTES:
        raise UserError(f"{path}: over {MAX_CASE_BYTES // 1024} KiB; a case is a page or two, shorten it")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise UserError(f"{path}:{line}: not UTF-8 text; save the file as UTF-8") from None
    text = text.replace("\r\n", "\n")
    strange = _STRANGE.search(text)
    if strange is not None:
        raise _strange_character(strange[0], str(path), text.count("\n", 0, strange.start()) + 1)
    if not text.strip():
        raise UserError(f"{path}: empty; begin with `title: ...`, `options:` and `seats:`")
    return text


def _with_hint(text: str, source: str) -> Located:
    """The parsed YAML; where a tab is to blame, the message says so."""
    try:
        located = parse_located_yaml(text, source)
    except UserError as error:
        tab = "'\\t'" in str(error)
        hint = "indent with spaces, not tabs" if tab else "see examples/ for the form"
        raise UserError(f"{error}; {hint}") from None
    for path, words in _list_texts(located.value, ()):
        strange = _STRANGE.search(words)  # written as an escape, e.g. "\0"
        if strange is not None:
            raise _strange_character(strange[0], source, located.line_of(path))
    return located


def _list_texts(value: Any, path: Place) -> Iterator[tuple[Place, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key), key
            yield from _list_texts(inner, (*path, key))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _list_texts(inner, (*path, place))


def _strange_character(character: str, source: str, line: int) -> UserError:
    return UserError(f"{source}:{line}: control character {character!a}; a case is plain text, remove it")


def _read_markdown(text: str, source: str) -> Located:
    lines = text.split("\n")
    if lines[0].strip() != _FENCE or _FENCE not in [line.strip() for line in lines[1:]]:
        raise UserError(f"{source}:1: a Markdown case begins with YAML between two `---` lines; add them")
    end = [line.strip() for line in lines].index(_FENCE, 1)
    front = _with_hint("\n".join(["", *lines[1:end]]), source)
    if not isinstance(front.value, dict):
        raise UserError(f"{source}:2: the part between the `---` lines must be keys, e.g. `title: ...`")
    value, places = dict(front.value), dict(front.lines)
    for heading, line, body in _split_sections(lines, end + 1):
        if heading is None:
            _give(value, "context", body, f"{source}:{line}", "context")
            places.setdefault(("context",), line)
            continue
        name = heading.lower()
        if name not in SEATS:
            raise UserError(f"{source}:{line}: {unknown('seat in the heading', name, SEATS)}")
        table = value.setdefault("seats", {})
        notes = table.setdefault(name, {}) if isinstance(table, dict) else None
        if not isinstance(notes, dict):
            raise UserError(f"{source}:{line}: seats.{name} must be a mapping of keys, e.g. `stakes: 83`")
        _give(notes, "facts", body, f"{source}:{line}", f"seats.{name}.facts")
        places.setdefault(("seats", name), line)
        places.setdefault(("seats", name, "facts"), line)
    return Located(value=value, lines=places)


def _split_sections(lines: Sequence[str], start: int) -> list[tuple[str | None, int, str]]:
    """(heading or None, its line number, the text under it); text before all headings has None."""
    sections: list[tuple[str | None, int, list[str]]] = [(None, start + 1, [])]
    for number, line in enumerate(lines[start:], start + 1):
        if line.startswith("## "):
            sections.append((line[3:].strip(), number, []))
        else:
            sections[-1][2].append(line)
    made = [(heading, number, "\n".join(body).strip()) for heading, number, body in sections]
    return [section for section in made if section[0] is not None or section[2]]


def _give(keys: dict[str, Any], key: str, text: str, where: str, name: str) -> None:
    if key in keys:
        raise UserError(f"{where}: {name} is given twice, above and in the text; keep one")
    keys[key] = text

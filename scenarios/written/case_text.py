"""From a file to the keys of a written case: size, encoding and characters checked, Markdown taken apart.

Markdown: YAML between two `---` lines, then what every seat reads; under `## cto` its facts.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from roles.errors import UserError, unknown
from scenarios.written.strict_yaml import Located, Place, parse_located_yaml

MAX_CASE_BYTES = 64 * 1024
YAML_ENDINGS, MARKDOWN_ENDINGS = (".yaml", ".yml"), (".md", ".markdown")
_FENCE = "---"
_STRANGE = re.compile(r"[^\n\t\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def read_case_text(path: Path, seats: Sequence[str]) -> tuple[str, Located]:
    """The file's text, and its keys with their lines; a Markdown body becomes `context` and seats' `facts`.

    Raises:
        UserError: no such file, not a case file, too large, not clean text, or malformed.
    """
    if path.suffix.lower() not in (*YAML_ENDINGS, *MARKDOWN_ENDINGS):
        raise UserError(f"{path}: a case is a .yaml or .md file; rename it, or give another file")
    text = _read_text(path)
    if path.suffix.lower() in MARKDOWN_ENDINGS:
        return text, _read_markdown(text, str(path), seats)
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


def _read_markdown(text: str, source: str, seats: Sequence[str]) -> Located:
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
        if name not in seats:
            raise UserError(f"{source}:{line}: {unknown('seat in the heading', name, list(seats))}")
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

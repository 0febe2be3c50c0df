"""YAML as its 1.2 core schema, read strictly: `1e-4` is a number, `no` is a string, no key stands twice.

No anchors, aliases or tags; `parse_located_yaml` also tells the line of every part.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from roles.errors import UserError, unknown

Place = tuple[str | int, ...]  # keys and places in lists, from the outside in


MOST_LEVELS = 64  # of nesting: what it costs to read "[[[[" grows with the square of the levels


class _Loader(yaml.SafeLoader):
    """SafeLoader with the resolvers of the YAML 1.2 core schema, of plain trees only.

    An alias could make a small file into a huge value.
    """

    _depth = 0

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 (yaml's own type)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping whose keys are distinct strings."""
        seen: set[str] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise yaml.MarkedYAMLError(
                    problem=f"key {key!r} is not a name", problem_mark=key_node.start_mark
                )
            if key in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"key {key!r} is repeated", problem_mark=key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep=deep)

    def compose_node(self, parent: Any, index: Any) -> Any:
        """The next node; one with an anchor, an alias or a tag, or too deep inside others, is refused."""
        self._depth += 1
        try:
            return self._compose(parent, index)
        finally:
            self._depth -= 1

    def _compose(self, parent: Any, index: Any) -> Any:
        parser: Any = self  # yaml's own methods carry no types
        event = parser.peek_event()
        if getattr(event, "anchor", None) is not None:  # of an alias, too
            raise yaml.MarkedYAMLError(
                problem="anchors (&) and aliases (*) are not allowed; write the value out",
                problem_mark=event.start_mark,
            )
        if getattr(event, "tag", None) is not None:
            raise yaml.MarkedYAMLError(
                problem="tags (!) are not allowed; write a plain value", problem_mark=event.start_mark
            )
        if self._depth > MOST_LEVELS:
            raise yaml.MarkedYAMLError(problem="nested too deeply", problem_mark=event.start_mark)
        return super().compose_node(parent, index)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), None
)
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?(?:0|[1-9][0-9_]*)$"), None)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:(?:\d+\.\d*|\.\d+)(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+|\.inf|\.nan)$"),
    None,
)


def read_user_text(path: Path, kind: str) -> str:
    """Return the text of a file that a user gave.

    Raises:
        UserError: missing, unreadable or not UTF-8; `kind` says what the file should be, "ablation" for one.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot read {kind} {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{kind} {path} is not UTF-8 text (byte {error.start})") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """A value and where its parts stand.

    Example: parse_located_yaml("a:\\n  b: 1", "x").line_of(("a", "b")) == 2
    """

    value: Any
    lines: Mapping[Place, int]  # 1 for the first line

    def line_of(self, path: Place) -> int:
        """The line of a part, or of the nearest part around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def parse_yaml(text: str, source: str) -> Any:
    """The value of one YAML document without anchors, aliases and tags.

    Raises:
        UserError: malformed, with source and line.
    """
    return parse_located_yaml(text, source).value


def read_settings(
    assignments: Iterable[str], known: Collection[str], *, option: str, what: str, form: str = "key=value"
) -> dict[str, Any]:
    """Read `key=value` arguments of a command line option, values in YAML; `form` is what a user is told.

    Raises:
        UserError: no "=", a key that is not among `known` (named as `what`), malformed YAML.
    """
    pairs = split_assignments(assignments, known, option=option, what=what, form=form)
    return {key: parse_yaml(text, f"{option} {key}") for key, text in pairs}


def split_assignments(
    assignments: Iterable[str], known: Collection[str], *, option: str, what: str, form: str
) -> Iterator[tuple[str, str]]:
    """Yield key and text of each `key=text`, one after the other: the first fault is told.

    Raises:
        UserError: no "=", or a key that is not among `known` (named as `what`).
    """
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals:
            raise UserError(f"{option} {assignment!r} is not of the form {form}")
        if key not in known:
            raise unknown(what, key, list(known))
        yield key, text


def parse_located_yaml(text: str, source: str) -> Located:
    """The value of one YAML document without anchors, aliases and tags, and the line of every part.

    Raises:
        UserError: malformed, with source and line.
    """
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        value = None if node is None else loader.construct_document(node)
        lines: dict[Place, int] = {}
        _find_lines(node, (), lines)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise UserError(f"{source}{line}: malformed YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise UserError(f"{source}: malformed YAML: {str(error).splitlines()[0]}") from None
    return Located(value=value, lines=lines)


def _find_lines(node: Any, path: Place, lines: dict[Place, int]) -> None:
    if isinstance(node, yaml.MappingNode):
        for key_node, child in node.value:
            inner = (*path, str(key_node.value))
            lines[inner] = key_node.start_mark.line + 1
            _find_lines(child, inner, lines)
    elif isinstance(node, yaml.SequenceNode):
        for place, child in enumerate(node.value):
            lines[*path, place] = child.start_mark.line + 1
            _find_lines(child, (*path, place), lines)


def explain_fault(
    error: ValidationError, located: Located, source: str, known: Callable[[int], Iterable[str]], whole: str
) -> UserError:
    """Say the first fault of a document in one line, with its place; an unknown key before all others.

    `known` lists the keys that may stand at a depth (from 1); `whole` names the document itself.
    """
    details = error.errors(include_url=False)
    first = next((one for one in details if one["type"] == "extra_forbidden"), details[0])
    place = tuple(part for part in first["loc"] if isinstance(part, str | int))
    where = f"{source}:{located.line_of(place)}"
    if first["type"] == "extra_forbidden":
        return UserError(f"{where}: {unknown('key', str(place[-1]), list(known(len(place))))}")
    name = ".".join(str(part) for part in place) or whole
    message = first["msg"].removeprefix("Value error, ")
    return UserError(f"{where}: {name}: {message[0].lower()}{message[1:]}")

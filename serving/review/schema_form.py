"""A form from an answer's pydantic schema or a tool's JSON schema, and the answer from what people filled in.

Texts, whole numbers, yes/no, fixed choices, lists of texts, objects and lists of objects; that is all that
answers of roles consist of. The schema itself is the judge: what it refuses comes back with its field's name.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from serving.review.pages import Form

FieldKind = Literal["text", "number", "flag", "choice", "choices", "lines", "group", "groups", "null"]
SPARE_ROWS = 2  # empty rows for more objects of a list
MAX_ROWS = 60
SHORT_TEXT = 120  # characters; a longer text gets several lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field as a page draws it.

    Example: Field(name="answer.escalate", label="escalate", kind="flag", value=False)
    """

    name: str
    label: str
    kind: FieldKind
    value: Any = None  # text, number, flag; list of texts for lines and choices
    choices: tuple[str, ...] = ()
    is_required: bool = False
    is_long: bool = False
    least: int | None = None
    most: int | None = None
    error: str = ""
    parts: tuple["Field", ...] = ()  # of a group
    rows: tuple[tuple["Field", ...], ...] = ()  # of groups; the last ones are empty

    @property
    def id(self) -> str:
        """Return the element's id."""
        return self.name.replace(".", "-")


def make_fields(
    schema: type[BaseModel] | Mapping[str, Any],
    value: Mapping[str, Any],
    *,
    prefix: str,
    choices: Mapping[str, Sequence[str]] | None = None,
    errors: Mapping[str, str] | None = None,
) -> tuple[Field, ...]:
    """Return the fields of a form that shows `value`; it need not be valid.

    `choices`: field's name without numbers of rows ("option", "offers.option") -> texts that may be chosen.
    `errors`: field's name -> why its last value was refused.
    """
    whole = _spell(schema)
    return _Maker(whole.get("$defs", {}), choices or {}, errors or {}).make_parts(whole, value, prefix, "")


def read_fields(schema: type[BaseModel] | Mapping[str, Any], form: Form, *, prefix: str) -> dict[str, Any]:
    """Return what was filled in as JSON values; the schema has not judged it yet."""
    whole = _spell(schema)
    return _read_object(whole, whole.get("$defs", {}), form, prefix)


def check_value(
    schema: type[BaseModel], value: Mapping[str, Any], *, prefix: str
) -> tuple[BaseModel | None, dict[str, str]]:
    """Return the answer; or None, and by field's name what is wrong with it.

    A text over its length, which a model's answer is cut to, is refused: a person would lose words unseen.
    """
    parts = _spell(schema)["properties"]
    too_long = {
        f"{prefix}.{name}": f"at most {parts[name]['maxLength']} characters, not {len(text)}"
        for name, text in value.items()
        if isinstance(text, str) and len(text) > parts.get(name, {}).get("maxLength", len(text))
    }
    if too_long:
        return None, too_long
    try:
        return schema.model_validate_json(json.dumps(value)), {}
    except ValidationError as error:
        found: dict[str, str] = {}
        for one in error.errors(include_url=False, include_input=False):
            found.setdefault(".".join([prefix, *map(str, one["loc"])]), one["msg"])
        return None, found


def _spell(schema: type[BaseModel] | Mapping[str, Any]) -> Mapping[str, Any]:
    return schema if isinstance(schema, Mapping) else schema.model_json_schema()


class _Maker:
    """Makes fields of one schema."""

    def __init__(
        self, defs: Mapping[str, Any], choices: Mapping[str, Sequence[str]], errors: Mapping[str, str]
    ) -> None:
        self._defs, self._choices, self._errors = defs, choices, errors

    def make_parts(
        self, node: Mapping[str, Any], value: Mapping[str, Any], prefix: str, path: str
    ) -> tuple[Field, ...]:
        required = node.get("required", ())
        return tuple(
            self._make(name, part, value.get(name), f"{prefix}.{name}", f"{path}{name}", name in required)
            for name, part in node["properties"].items()
        )

    def _make(
        self, label: str, node: Mapping[str, Any], value: Any, name: str, path: str, is_required: bool
    ) -> Field:
        node = _resolve(node, self._defs)
        inside = [why for where, why in self._errors.items() if where.startswith(f"{name}.")]
        given: dict[str, Any] = {
            "name": name,
            "label": label.replace("_", " "),
            "is_required": is_required,
            # what is wrong with it, or inside it where it has no parts of its own
            "error": self._errors.get(name, next(iter(inside), "")),
        }
        chosen = tuple(self._choices.get(path, node.get("enum", ())))
        match node.get("type"):
            case "object":
                known = value if isinstance(value, Mapping) else {}
                return Field(kind="group", parts=self.make_parts(node, known, name, f"{path}."), **given)
            case "array":
                item = _resolve(node["items"], self._defs)
                many = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else []
                if item.get("type") == "object":
                    return Field(kind="groups", rows=self._make_rows(item, many, name, path), **given)
                texts = [one for one in many if isinstance(one, str)]
                shown = (*chosen, *(one for one in texts if one not in chosen)) if chosen else ()
                return Field(kind="choices" if chosen else "lines", value=texts, choices=shown, **given)
            case "boolean":
                return Field(kind="flag", value=value is True, **given)
            case "integer" | "number":
                least, most = node.get("minimum"), node.get("maximum")
                return Field(kind="number", value=value, least=least, most=most, **given)
            case _ if chosen:
                is_known = value is None or value in chosen
                return Field(
                    kind="choice", value=value, choices=chosen if is_known else (*chosen, str(value)), **given
                )
            case _:
                text = value if isinstance(value, str) else ""
                longest = node.get("maxLength")
                is_long = longest is not None and longest > SHORT_TEXT
                return Field(kind="text", value=text, most=longest, is_long=is_long, **given)

    def _make_rows(
        self, item: Mapping[str, Any], known: Sequence[Any], name: str, path: str
    ) -> tuple[tuple[Field, ...], ...]:
        values = [one if isinstance(one, Mapping) else {} for one in known] + [{}] * SPARE_ROWS
        return tuple(
            self.make_parts(item, one, f"{name}.{number}", f"{path}.")
            for number, one in enumerate(values[:MAX_ROWS])
        )


def _resolve(node: Mapping[str, Any], defs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the node that is meant: what a reference names, what is not null of two."""
    if "$ref" in node:
        return _resolve(defs[node["$ref"].rpartition("/")[2]], defs)
    kinds = [one for one in node.get("anyOf", ()) if one.get("type") != "null"]
    return _resolve(kinds[0], defs) if len(kinds) == 1 else node


def _read_object(node: Mapping[str, Any], defs: Mapping[str, Any], form: Form, prefix: str) -> dict[str, Any]:
    found = {}
    for name, part in node["properties"].items():
        value = _read(_resolve(part, defs), defs, form, f"{prefix}.{name}")
        may_be_null = any(one.get("type") == "null" for one in part.get("anyOf", ()))
        found[name] = None if may_be_null and _is_empty(value) else value
    return found


def _read(node: Mapping[str, Any], defs: Mapping[str, Any], form: Form, name: str) -> Any:
    given = list(form.get(name, ()))
    match node.get("type"):
        case "object":
            return _read_object(node, defs, form, name)
        case "array":
            item = _resolve(node["items"], defs)
            if item.get("type") == "object":
                rows = [_read_object(item, defs, form, f"{name}.{number}") for number in range(MAX_ROWS)]
                return [row for row in rows if not _is_empty(row)]
            return [line.strip() for one in given for line in one.splitlines() if line.strip()]
        case "boolean":
            return "yes" in given
        case "integer" | "number":
            return _read_number(given[0]) if given else None
        case _:
            return given[0].replace("\r\n", "\n").strip() if given else ""


def _read_number(text: str) -> int | str | None:
    """Return the whole number; else the text, for the schema to refuse."""
    text = text.strip()
    if text.isascii() and text.removeprefix("-").isdigit() and len(text) < 20:
        return int(text)
    return text or None


def _is_empty(value: Any) -> bool:
    """Return whether nothing was filled in."""
    if isinstance(value, Mapping):
        return all(_is_empty(one) for one in value.values())
    return value in (None, "", [], False)

"""The shape of a role, and the one strict parser through which every model answer passes."""

import json
import math
import re
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

MAX_ANSWER_CHARS = 20_000
MAX_JSON_DEPTH = 100  # of any JSON that comes from outside

A = TypeVar("A", bound="Answer")


class Answer(BaseModel):
    """Base of every answer schema: exact types, no unknown keys, immutable."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """Signature of a deterministic tool as the model sees it.

    Example: Tool(name="measure", description="Exact figures of one option.",
                  parameters={"type": "object", "properties": {"option": {"type": "string"}},
                              "required": ["option"]})
    """

    name: str
    description: str
    parameters: dict[str, Any]  # JSON schema of the arguments object

    def as_chat_tool(self) -> dict[str, Any]:
        """The tool in the `tools=` format of Hugging Face chat templates."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A member of the team: mandate, answer schema, tools.

    Example: ROLES["cto"].title == "CTO"
    """

    name: str  # key in the registries: "cto"
    title: str  # as people say it: "CTO"
    mandate: str  # one paragraph; the system message for pretrained models
    answer: type[Answer]  # schema of the final answer in the role's own family
    tools: tuple[Tool, ...] = ()
    letter: str = ""  # one capital letter that names the role in compact reports


# Failures of a text that is not one JSON object of the schema; such an answer earns nothing.
FORMAT_FAILURES = ("too_long", "no_answer", "not_json", "duplicate_key", "trailing_text", "schema")


class AnswerError(Exception):
    """Fault of a text that is no answer. Verifiers catch it and make it a verdict."""

    def __init__(self, failure: str, explanation: str) -> None:
        super().__init__(explanation)
        self.failure = failure


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    if len(keys) != len(set(keys)):
        raise AnswerError("duplicate_key", "the JSON object repeats a key")
    return dict(pairs)


def _refuse_constant(name: str) -> Any:
    raise AnswerError("not_json", f"{name} is not JSON")


def _read_float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise AnswerError("not_json", "a number beyond all floats is not read")
    return value


_DECODER = json.JSONDecoder(
    object_pairs_hook=_refuse_duplicates, parse_constant=_refuse_constant, parse_float=_read_float
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_HALF_PAIR = re.compile(r"[\ud800-\udfff]|\\u[dD][89a-fA-F]")
_JSON_SPACE = " \t\r\n"
_FENCES = ("```json", "```")


def parse_strict_json(text: str) -> Any:
    """One strict JSON value: finite numbers, no duplicate keys, whole characters, MAX_JSON_DEPTH; no repair.

    Raises:
        AnswerError: anything else.
    """
    try:
        value = json.loads(
            text,
            object_pairs_hook=_refuse_duplicates,
            parse_constant=_refuse_constant,
            parse_float=_read_float,
        )
    except (ValueError, RecursionError) as error:
        raise AnswerError("not_json", f"not valid JSON: {type(error).__name__}") from None
    require_plain(value, text)
    return value


def require_plain(value: Any, text: str) -> None:
    """Refuse a JSON value, read from this text, that is nested too deep or holds half a surrogate pair.

    What takes such a value further (a template, a tokenizer, an HTTP reply) fails on it.

    Raises:
        AnswerError: says which.
    """
    can_be_deep = text.count("[") + text.count("{") > MAX_JSON_DEPTH
    if not can_be_deep and not _HALF_PAIR.search(text):
        return
    level: list[Any] = [value]
    for _ in range(MAX_JSON_DEPTH + 1):
        following: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                following += one.keys()
                following += one.values()
            elif isinstance(one, list):
                following += one
            elif isinstance(one, str) and _SURROGATE.search(one):
                raise AnswerError("not_json", "not valid JSON: half a surrogate pair")
        level = following
        if not level:
            return
    raise AnswerError("not_json", f"not valid JSON: nested more than {MAX_JSON_DEPTH} deep")


def find_answer(text: str) -> str:
    """The part of a message in which the answer must stand: all that follows the reasoning markup.

    Raises:
        AnswerError: reasoning that is opened and not closed.
    """
    _, _, after = text.rpartition("</think>")
    if "<think>" in after:
        raise AnswerError("no_answer", "the reasoning is not closed: no answer follows </think>")
    return after


def parse_answer(text: str, schema: type[A]) -> A:
    """The answer that ends the message, as `schema`.

    One rule: outside reasoning markup (<think>...</think>) the first "{" begins one strict JSON object, and
    nothing but white space follows it (or the fence that closes a code block of exactly this object). Words
    before it are not read, so they can neither add to the answer nor take it back. No repair, no coercion.

    Raises:
        AnswerError: `failure` is one of FORMAT_FAILURES.
    """
    if len(text) > MAX_ANSWER_CHARS:
        raise AnswerError("too_long", f"answer of {len(text)} characters (at most {MAX_ANSWER_CHARS})")
    answer = find_answer(text)
    start = answer.find("{")
    if start < 0:
        raise AnswerError("no_answer", "no JSON object in the answer")
    try:
        value, end = _DECODER.raw_decode(answer, start)
    except (ValueError, RecursionError) as error:
        raise AnswerError("not_json", f"not valid JSON: {type(error).__name__}") from None
    require_plain(value, answer)
    rest = answer[end:].strip(_JSON_SPACE)
    is_fenced = answer[:start].rstrip(_JSON_SPACE).endswith(_FENCES)
    if rest != "" and not (is_fenced and rest == "```"):
        raise AnswerError("trailing_text", "text follows the JSON object")
    try:
        return schema.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "answer"
        raise AnswerError("schema", f"{where}: {first['msg']}") from None

"""The shape of a role, and the one strict parser through which every model answer passes."""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

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


# finds where an object ends; what it holds is read strictly later
_FINDER = json.JSONDecoder(parse_constant=str, parse_int=len, parse_float=len)
_OBJECT_START = re.compile(r'\{(?=[ \t\r\n]*["}])')
MOST_READ_CHARS = 5 * MAX_ANSWER_CHARS  # in all tries to find an answer's beginning: nesting makes many
TRY_CHARS = 50  # what a try costs in characters, however early it ends
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


def split_answer(text: str) -> tuple[str, str]:
    """The words of a message before its answer, and the answer: the JSON object that ends the message.

    One rule: outside reasoning markup (<think>...</think>) the answer is the last complete JSON object, and
    nothing but white space follows it (or the fence that closes a code block of exactly this object). Words
    before it are not read, braces or not; but another complete object before it that has a key in common with
    it makes two answers, which are none. No object within the answer is one: it ends before the message does.

    Example: split_answer('of {a, b} take {"vote": "accept"}') == ("of {a, b} take ", '{"vote": "accept"}')

    Raises:
        AnswerError: there is no such object; `failure` is one of FORMAT_FAILURES.
    """
    if len(text) > MAX_ANSWER_CHARS:
        raise AnswerError("too_long", f"answer of {len(text)} characters (at most {MAX_ANSWER_CHARS})")
    after = find_answer(text)
    offset = len(text) - len(after)
    if "{" not in after:
        raise AnswerError("no_answer", "no JSON object in the answer")
    written = after.rstrip(_JSON_SPACE)
    ends = {len(written), len(written.removesuffix("```").rstrip(_JSON_SPACE))}
    objects = list(_list_objects(after))
    answers = [
        (start, end, value)
        for start, end, value in objects
        if end == len(written) or (end in ends and after[:start].rstrip(_JSON_SPACE).endswith(_FENCES))
    ]
    if not answers and not objects:
        raise AnswerError("not_json", "not valid JSON: no complete object in the answer")
    if not answers:
        raise AnswerError("trailing_text", "text follows the JSON object")
    start, end, answer = answers[0]
    if any(one < start and value.keys() & answer.keys() for one, _, value in objects):
        raise AnswerError("trailing_text", "another JSON object with the answer's keys stands before it")
    return text[: offset + start], after[start:end]


def _list_objects(text: str) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """(start, end, value) of the complete JSON objects from the right, nested ones too; values unchecked.

    Raises:
        AnswerError: braces nested so deep that more than MOST_READ_CHARS characters would be read.
    """
    num_read = 0
    for start in reversed([found.start() for found in _OBJECT_START.finditer(text)]):
        if num_read > MOST_READ_CHARS:
            raise AnswerError("not_json", "not valid JSON: too many braces within each other")
        num_read += TRY_CHARS
        try:
            value, end = _FINDER.raw_decode(text, start)
        except json.JSONDecodeError as error:
            num_read += max(error.pos - start, 0)
        except RecursionError:
            num_read += len(text) - start
        else:
            num_read += end - start
            yield start, end, value


def parse_answer(text: str, schema: type[A]) -> A:
    """The answer that ends the message (see `split_answer`), as `schema`. No repair, no coercion.

    Raises:
        AnswerError: `failure` is one of FORMAT_FAILURES.
    """
    value = parse_strict_json(split_answer(text)[1])
    try:
        return schema.model_validate(value)
    except ValidationError as error:
        raise AnswerError("schema", say_fault(error)) from None


def say_fault(error: ValidationError) -> str:
    """The first fault of a value that a schema refuses, as "where: what"."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "answer"
    return f"{where}: {first['msg']}"


def free_text(most_chars: int) -> BeforeValidator:
    """For words that nothing is judged by: cut at `most_chars`, "" in place of another value."""
    return BeforeValidator(lambda value: value[:most_chars] if isinstance(value, str) else "")


def free_texts(most: int) -> BeforeValidator:
    """For a list of such words: cut at `most` entries; another value stands in it as JSON."""

    def read(value: Any) -> list[str]:
        entries = value if isinstance(value, list | tuple) else [value]
        return [entry if isinstance(entry, str) else json.dumps(entry) for entry in entries[:most]]

    return BeforeValidator(lambda value: read([json.dumps(value)] if isinstance(value, str) else value))

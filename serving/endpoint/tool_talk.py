"""Tools in OpenAI's messages: what a caller offers, calls that a role makes, and their results."""

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from roles.base import AnswerError, Tool, parse_strict_json
from roles.errors import UserError
from scenarios.base import ToolCall
from simulator.tool_calls import OPEN, BadToolCallError, format_tool_call, parse_tool_calls

MOST_TOOLS = 64
Turn = tuple[Literal["user", "assistant", "tool"], tuple[str, ...]]  # who, and its texts: several of tools


class _TalkBody(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class OfferedFunction(_TalkBody):
    """A tool of the caller. Example: OfferedFunction(name="add", parameters={"type": "object"})"""

    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    description: str = ""
    parameters: dict[str, Any] = Field(default={})
    strict: Literal[False] | None = None


class OfferedTool(_TalkBody):
    """An entry of `tools`."""

    type: Literal["function"]
    function: OfferedFunction

    def as_tool(self) -> Tool:
        """Return it as roles have tools."""
        schema = {"type": "object", "properties": {}, **self.function.parameters}
        return Tool(name=self.function.name, description=self.function.description, parameters=schema)


class CalledFunction(_TalkBody):
    """Name and arguments of a call, as JSON text."""

    name: str
    arguments: str = "{}"


class MadeCall(_TalkBody):
    """An entry of `tool_calls` of an assistant's message."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction

    def as_call(self) -> ToolCall:
        """Return it as agents make calls.

        Raises:
            UserError: arguments that are no JSON object.
        """
        try:
            arguments = parse_strict_json(self.function.arguments)
        except AnswerError as error:
            raise UserError(f"tool_calls: the arguments of {self.id!r} are no JSON: {error}") from None
        if not isinstance(arguments, dict):
            raise UserError(f"tool_calls: the arguments of {self.id!r} are no JSON object")
        return ToolCall(name=self.function.name, arguments=arguments)


def write_calls(text: str, calls: Sequence[MadeCall]) -> str:
    """Return an assistant's turn as its weights write it.

    Raises:
        UserError: as `MadeCall.as_call`.
    """
    return format_tool_call(text, *(call.as_call() for call in calls))


def order_results(calls: Sequence[MadeCall], results: Sequence[tuple[str | None, str]]) -> tuple[str, ...]:
    """Return the texts of (id, text) in the order of the calls.

    Raises:
        UserError: not one result for each call.
    """
    wanted, found = [call.id for call in calls], [identity for identity, _ in results]
    if sorted(wanted) != sorted(map(str, found)):
        raise UserError(f"messages: the calls {wanted} have the results {found}; send one for each call")
    texts = dict(results)
    return tuple(texts[identity] for identity in wanted)


def make_message(text: str, *, with_tools: bool) -> tuple[dict[str, Any], bool]:
    """Return a reply's message, and whether it calls tools; words that only look like a call are content."""
    plain = {"role": "assistant", "content": text, "refusal": None}
    try:
        calls = parse_tool_calls(text) if with_tools else ()
    except BadToolCallError:
        return plain, False
    if not calls:
        return plain, False
    said = text[: text.index(OPEN)].strip()
    return {**plain, "content": said or None, "tool_calls": [_describe(call) for call in calls]}, True


def _describe(call: ToolCall) -> Mapping[str, Any]:
    function = {"name": call.name, "arguments": json.dumps(dict(call.arguments))}
    return {"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function", "function": function}

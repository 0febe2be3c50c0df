"""Tool calls in the format of common chat templates: <tool_call>{"name", "arguments"}</tool_call>.

A turn may hold several, one after another at its end; they are made in their order.
"""

import json
from collections.abc import Sequence
from typing import Any

from roles.base import AnswerError, parse_strict_json
from roles.limits import MAX_CALL_CHARS, MAX_CALLS_PER_TURN
from scenarios.base import ToolCall

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_TEXT_TOOLS = (
    f'To call a tool, end your turn with\n{OPEN}\n{{"name": "...", "arguments": {{...}}}}\n{CLOSE}\n'
    "Its result comes between <tool_response> and </tool_response>. The tools: "
)


class BadToolCallError(Exception):
    """The text means to call tools but is not one or more well-formed calls; a policy fault."""


def format_tool_call(text: str, *calls: ToolCall) -> str:
    """Write an assistant turn: its text, then the calls."""
    bodies = [json.dumps({"name": call.name, "arguments": dict(call.arguments)}) for call in calls]
    return text + "".join(f"{OPEN}\n{body}\n{CLOSE}" for body in bodies)


def parse_tool_calls(text: str) -> tuple[ToolCall, ...]:
    """Return the tool calls that end an assistant turn; () where there are none.

    Either all are well-formed or none counts.

    Raises:
        BadToolCallError: one that is not closed, words between or after them, more than
            MAX_CALLS_PER_TURN, or a body not {"name": str, "arguments": object}.
    """
    if OPEN not in text and CLOSE not in text:
        return ()
    before, *pieces = text.split(OPEN)
    if CLOSE in before or any(piece.count(CLOSE) != 1 for piece in pieces):
        raise BadToolCallError("close every <tool_call> with </tool_call> before the next one")
    if len(pieces) > MAX_CALLS_PER_TURN:
        raise BadToolCallError(f"{len(pieces)} tool calls in one turn, at most {MAX_CALLS_PER_TURN}")
    bodies = []
    for piece in pieces:
        body, after = piece.split(CLOSE)
        if after.strip():
            raise BadToolCallError("nothing but another tool call may follow a tool call in the same turn")
        bodies.append(body)
    return tuple(_parse_body(body) for body in bodies)


def split_calls(text: str) -> tuple[str, ...]:
    """Return a turn with several calls as one text per call; a turn with one, or with none, as it is."""
    try:
        calls = parse_tool_calls(text)
    except BadToolCallError:
        return (text,)
    if len(calls) < 2:
        return (text,)
    words = text[: text.index(OPEN)]
    return tuple(format_tool_call("" if place else words, call) for place, call in enumerate(calls))


def _parse_body(body: str) -> ToolCall:
    if len(body) > MAX_CALL_CHARS:
        raise BadToolCallError(f"a tool call of {len(body)} characters, at most {MAX_CALL_CHARS}")
    try:
        value = parse_strict_json(body.strip())
    except AnswerError as error:
        raise BadToolCallError(str(error)) from None
    if not isinstance(value, dict) or set(value) != {"name", "arguments"}:
        raise BadToolCallError('a tool call is {"name": ..., "arguments": {...}}')
    if not isinstance(value["name"], str) or not isinstance(value["arguments"], dict):
        raise BadToolCallError("name must be a string and arguments an object")
    return ToolCall(name=value["name"], arguments=value["arguments"])


def describe_tools(tools: Sequence[dict[str, Any]]) -> str:
    """Say in words how to call these tools, for an endpoint that takes none."""
    return f"{_TEXT_TOOLS}{json.dumps(list(tools))}"

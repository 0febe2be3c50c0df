"""Tool calls in the format of common chat templates: <tool_call>{"name", "arguments"}</tool_call>."""

import json

from roles.base import AnswerError, parse_strict_json
from scenarios.base import ToolCall

OPEN, CLOSE = "<tool_call>", "</tool_call>"


class BadToolCallError(Exception):
    """The text means to call a tool but is not one well-formed call; a policy fault."""


def format_tool_call(text: str, call: ToolCall) -> str:
    """Write an assistant turn: its text, then the call."""
    body = json.dumps({"name": call.name, "arguments": dict(call.arguments)})
    return f"{text}{OPEN}\n{body}\n{CLOSE}"


def parse_tool_call(text: str) -> ToolCall | None:
    """Return the single tool call of an assistant turn; None where there is none.

    Raises:
        BadToolCallError: several calls, an unclosed one, or a body not {"name": str, "arguments": object}.
    """
    if OPEN not in text and CLOSE not in text:
        return None
    if text.count(OPEN) != 1 or text.count(CLOSE) != 1 or text.index(CLOSE) < text.index(OPEN):
        raise BadToolCallError("write exactly one <tool_call>...</tool_call> per turn")
    start, end = text.index(OPEN) + len(OPEN), text.index(CLOSE)
    if text[end + len(CLOSE) :].strip():
        raise BadToolCallError("nothing may follow a tool call in the same turn")
    try:
        value = parse_strict_json(text[start:end].strip())
    except AnswerError as error:
        raise BadToolCallError(str(error)) from None
    if not isinstance(value, dict) or set(value) != {"name", "arguments"}:
        raise BadToolCallError('a tool call is {"name": ..., "arguments": {...}}')
    if not isinstance(value["name"], str) or not isinstance(value["arguments"], dict):
        raise BadToolCallError("name must be a string and arguments an object")
    return ToolCall(name=value["name"], arguments=value["arguments"])

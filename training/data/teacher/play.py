"""A teacher model plays one lesson: it is asked turn by turn, and its tool calls are executed for real.

The teacher is told more than the row keeps: besides the mandate the schema of the answer and how to work. The
row holds what an oracle's row holds (mandate, brief, turns), so that students learn to do without being told,
and what the teacher thought, where that stands up to the check.
Calls are read in both shapes, native `tool_calls` of the protocol and one <tool_call> in the text.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from roles.base import AnswerError, parse_strict_json
from scenarios.base import ToolCall
from simulator.engines.openai.reply import CUT, ChatReply, RequestedCall
from simulator.engines.openai.wire import ToolShape
from simulator.tool_calls import OPEN, BadToolCallError, describe_tools, parse_tool_calls
from training.data.folders.columns import Message
from training.data.folders.rows import list_tools
from training.data.teacher.checks import PlayedTurn, Rejection, list_answers, observe, write_thoughts
from training.data.teacher.lessons import Lesson

Ask = Callable[[Sequence[Message]], Awaitable[ChatReply]]

MAX_BRACKETS = 200  # of one call: deeper arguments could not be written back

_THOUGHTS = re.compile(r"\s*<think>(.*?)</think>\s*", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """Result of one lesson. Example: Play(turns=(PlayedTurn(text='{"total": 42}'),), fault=None)"""

    turns: tuple[PlayedTurn, ...]
    fault: Rejection | None  # why the work ended without an answer that could be checked


def open_conversation(lesson: Lesson, shape: ToolShape) -> list[Message]:
    """Messages to the teacher before its first turn."""
    system = f"{lesson.role.mandate}\n\n{lesson.instructions}".rstrip()
    if shape == "text" and lesson.role.tools:
        system += f"\n\n{describe_tools(list_tools(lesson.role))}"
    return [{"role": "system", "content": system}, {"role": "user", "content": lesson.brief}]


async def play_lesson(lesson: Lesson, ask: Ask, *, max_turns: int, shape: ToolShape = "native") -> Play:
    """Ask until the teacher answers, calls a tool in vain, is cut off, or has had `max_turns` turns.

    A failed call ends the work at once: no check would let the play pass, so nothing more is paid for it.
    """
    conversation = open_conversation(lesson, shape)
    turns: list[PlayedTurn] = []
    asked = ""
    for _ in range(max_turns):
        reply = await ask(conversation)
        thoughts, text = _split_thoughts(reply)
        if reply.finish_reason in CUT:
            return _end(turns, Rejection(reason="answer", detail=f"turn cut off: {reply.finish_reason}"))
        try:
            calls = [_read_call(call) for call in reply.calls] or _read_text_call(text)
        except BadToolCallError as error:
            return _end(turns, Rejection(reason="tools", detail=str(error)))
        if not calls:
            turns.append(PlayedTurn(text=thoughts + text, asked=asked))
            message = lesson.follow_up(list_answers(turns))
            if message is None:
                return _end(turns, None)
            asked = message
            conversation += [_echo(text, ()), {"role": "user", "content": message}]
            continue
        conversation.append(_echo(text, reply.calls))
        words = thoughts + (text if reply.calls else text[: text.index(OPEN)].rstrip())
        for position, call in enumerate(calls):  # calls made in one breath become turns of their own
            observation, is_accepted = observe(lesson, turns, call)
            said = "" if position else words
            turns.append(PlayedTurn(text=said, call=call, observation=observation, asked=asked))
            asked = ""
            if not is_accepted:
                return _end(turns, None)
            conversation.append(_tell(observation, reply.calls[position] if reply.calls else None))
    return _end(turns, Rejection(reason="answer", detail=f"no answer in {max_turns} turns"))


def _split_thoughts(reply: ChatReply) -> tuple[str, str]:
    """Return what the teacher thought, in <think> marks and "" without, and what it said.

    Servers send thoughts in a field of their own or at the beginning of the text.
    """
    thoughts, text = reply.reasoning, reply.text
    found = _THOUGHTS.match(text)
    if found is not None:
        thoughts, text = thoughts or found[1], text[found.end() :]
    return (write_thoughts(thoughts) if thoughts.strip() else ""), text


def _end(turns: Sequence[PlayedTurn], fault: Rejection | None) -> Play:
    return Play(turns=tuple(turns), fault=fault)


def _refuse_depth(text: str) -> None:
    if text.count("[") + text.count("{") > MAX_BRACKETS:
        raise BadToolCallError(f"a call with more than {MAX_BRACKETS} brackets")


def _read_call(call: RequestedCall) -> ToolCall:
    _refuse_depth(call.arguments)
    try:
        arguments = parse_strict_json(call.arguments or "{}")
    except AnswerError as error:
        raise BadToolCallError(f"arguments of {call.name[:40]!r}: {error}") from None
    if not isinstance(arguments, dict):
        raise BadToolCallError(f"arguments of {call.name[:40]!r} are not an object")
    return ToolCall(name=call.name, arguments=arguments)


def _read_text_call(text: str) -> list[ToolCall]:
    if OPEN in text:
        _refuse_depth(text)
    return list(parse_tool_calls(text))


def _echo(text: str, calls: Sequence[RequestedCall]) -> Message:
    """The teacher's own turn, as it is shown to it from then on."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments or "{}"},
            }
            for call in calls
        ]
    return message


def _tell(observation: str, call: RequestedCall | None) -> Message:
    """Message with the tool's result; a teacher that calls in its text is answered in text."""
    if call is None:
        return {"role": "user", "content": f"<tool_response>\n{observation}\n</tool_response>"}
    return {"role": "tool", "tool_call_id": call.id, "content": observation}

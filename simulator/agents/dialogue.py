"""Reads a trajectory back as messages: prompts, tool calls, observations and answers of one role.

The chat's own framing (headers, end-of-turn markers) is taken off, so that people see the words alone.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from roles.base import Role
from simulator.agents.tool_calls import CLOSE, OPEN
from simulator.chat import Chat
from simulator.records import Trajectory, Turn

_SLOT = "A 10 B 11 C 12"  # plain text that every tokenizer of ours gives back unchanged


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a transcript.

    Example: Message(source="tool", text="latency 35", turn=None)
    """

    source: Literal["user", "tool", "agent"]
    text: str
    turn: Turn | None  # the sampled turn where source is "agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One message to a role, its tool calls, and its answer.

    Example: Exchange(message="Retail case.", tool_calls=(("<tool_call>...", "latency 35"),),
                      answer='{"pick": "B", "flag": 1, "veto": []}')
    """

    message: str
    tool_calls: tuple[tuple[str, str], ...]  # (turn with the call, observation), in order
    answer: str  # its last turn


def read_messages(trajectory: Trajectory, chat: Chat, role: Role) -> list[Message]:
    """Return the transcript in order; framing that is not this chat's stays in the text."""
    openings = [_frame(chat, chat.open(role, _SLOT, with_tools=tools)) for tools in (False, True)]
    asks, observes = _frame(chat, chat.ask(_SLOT)), _frame(chat, chat.observe(_SLOT))
    messages: list[Message] = []
    for turn in trajectory.turns:
        text = chat.decode(turn.context_ids)
        called = bool(messages) and any(mark in messages[-1].text for mark in (OPEN, CLOSE, "```py"))
        source: Literal["user", "tool"] = "user"
        if not messages:
            text = _unframe(text, openings)
        elif called and _is_framed(text, observes):
            source, text = "tool", _unframe(text, [observes])
        else:
            text = _unframe(text, [asks])
        messages += [
            Message(source=source, text=text, turn=None),
            Message(source="agent", text=turn.text, turn=turn),
        ]
    return messages


def read_exchanges(trajectory: Trajectory, chat: Chat, role: Role) -> list[Exchange]:
    """Return the transcript cut at everything that was asked of the role."""
    groups: list[list[Message]] = []
    for message in read_messages(trajectory, chat, role):
        if message.source == "user":
            groups.append([])
        groups[-1].append(message)
    return [
        Exchange(
            message=group[0].text,
            tool_calls=tuple(
                (call.text, told.text) for call, told in pairwise(group) if told.source == "tool"
            ),
            answer=group[-1].text,
        )
        for group in groups
    ]


def _frame(chat: Chat, ids: tuple[int, ...]) -> tuple[str, str]:
    """Return what the chat writes around a message."""
    before, _, after = chat.decode(ids).partition(_SLOT)
    return before, after


def _is_framed(text: str, frame: tuple[str, str]) -> bool:
    before, after = frame
    return before in text and text.endswith(after)


def _unframe(text: str, frames: Iterable[tuple[str, str]]) -> str:
    for before, after in frames:
        if _is_framed(text, (before, after)):
            return text[text.index(before) + len(before) : len(text) - len(after)]
    return text

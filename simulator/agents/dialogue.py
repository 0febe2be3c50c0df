"""Reads a trajectory back as messages: prompts, tool calls, observations and answers of one role.

The chat's own framing (headers, end-of-turn markers) is taken off, so that people see the words alone.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from roles.base import Role
from simulator.chat import Chat
from simulator.records import Trajectory, Turn
from simulator.tool_calls import CLOSE, OPEN, split_calls

_SLOT = "A 10 B 11 C 12"  # plain text that every tokenizer of ours gives back unchanged
_OTHER = "D 13 E 14 F 15"


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptMessage:
    """One message of a transcript.

    Example: TranscriptMessage(source="tool", text="latency 35", turn=None)
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
    tool_calls: tuple[tuple[str, str], ...]  # (text of the call, observation), in order
    answer: str  # its last turn


def read_messages(trajectory: Trajectory, chat: Chat, role: Role) -> list[TranscriptMessage]:
    """Return the transcript in order, a message per observation; another chat's framing stays in the text."""
    openings = [_frame(chat, chat.open(role, _SLOT, with_tools=tools)) for tools in (False, True)]
    asks, observes = _frame(chat, chat.ask(_SLOT)), _frame(chat, chat.observe(_SLOT))
    between = chat.decode(chat.observe(_SLOT, _OTHER)).partition(_SLOT)[2].partition(_OTHER)[0]
    messages: list[TranscriptMessage] = []
    for turn in trajectory.turns:
        text = chat.decode(turn.context_ids)
        called = bool(messages) and any(mark in messages[-1].text for mark in (OPEN, CLOSE, "```py"))
        if not messages:
            messages.append(TranscriptMessage(source="user", text=_unframe(text, openings), turn=None))
        elif called and _is_framed(text, observes):
            num_calls = len(split_calls(messages[-1].text))
            told = _unframe(text, [observes]).split(between, num_calls - 1)
            messages += [TranscriptMessage(source="tool", text=one, turn=None) for one in told]
        else:
            messages.append(TranscriptMessage(source="user", text=_unframe(text, [asks]), turn=None))
        messages.append(TranscriptMessage(source="agent", text=turn.text, turn=turn))
    return messages


def read_exchanges(trajectory: Trajectory, chat: Chat, role: Role) -> list[Exchange]:
    """Return the transcript cut at everything that was asked of the role."""
    groups: list[list[TranscriptMessage]] = []
    for message in read_messages(trajectory, chat, role):
        if message.source == "user":
            groups.append([])
        groups[-1].append(message)
    return [
        Exchange(
            message=group[0].text,
            tool_calls=tuple(_pair_calls(group)),
            answer=group[-1].text,
        )
        for group in groups
    ]


def _pair_calls(group: Sequence[TranscriptMessage]) -> Iterator[tuple[str, str]]:
    """Yield every call with what it was told, in order."""
    calls: list[str] = []
    for message in group:
        if message.source == "agent":
            calls = list(split_calls(message.text))
        elif message.source == "tool":
            yield (calls.pop(0) if calls else "", message.text)


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

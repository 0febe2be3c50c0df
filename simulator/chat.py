"""Chats: transcripts become token ids by appending, so sampled ids are never tokenised again.

`Chat` is the protocol. In the two chats of this module a token is a character: scripts read `PlainChat`, and
`MessageChat` reads back as messages, for seats of several engines and for endpoints without ids.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, Protocol

from roles.base import Answer, Role, Tool
from roles.registry import ROLES

Speaker = Literal["system", "user", "tool", "assistant"]

_SPEAKERS: tuple[Speaker, ...] = ("system", "user", "tool", "assistant")
_MARKERS = tuple(f"<|{name}|>" for name in ("end", *_SPEAKERS))
_END, _SYSTEM, _USER, _TOOL, _ASSISTANT = range(len(_MARKERS))


class Chat(Protocol):
    """Text in, token ids out; every text is neutralised (no special token can be smuggled in)."""

    end_id: int  # the end-of-turn token

    def open(self, role: Role, brief: str, *, with_tools: bool) -> tuple[int, ...]:
        """Return a new transcript up to and including the assistant's header."""

    def observe(self, *texts: str) -> tuple[int, ...]:
        """Return ids to append after a finished assistant turn: one text per tool call, header included."""

    def ask(self, text: str) -> tuple[int, ...]:
        """Return ids of a further user message after a finished assistant turn, header included."""

    def encode(self, text: str) -> tuple[int, ...]:
        """Return ids of assistant text (as a demonstration writes it), end-of-turn not included."""

    def decode(self, ids: tuple[int, ...]) -> str:
        """Text of sampled ids, end-of-turn left out, tool-call markers kept."""


class PlainChat:
    """Ids 0-4 are the markers, every other id a character; text never encodes to a marker.

    A role's system text is remembered by its name.

    Example: PlainChat().decode(PlainChat().encode("B")) == "B"
    """

    end_id = _END

    def __init__(self) -> None:
        self._openings: dict[tuple[str, bool], tuple[int, ...]] = {}

    def open(self, role: Role, brief: str, *, with_tools: bool) -> tuple[int, ...]:
        key = (role.name, with_tools)
        if key not in self._openings:
            tools = f"\nTools: {' '.join(tool.name for tool in role.tools)}." if with_tools else ""
            self._openings[key] = (_SYSTEM, *self.encode(f"{role.title}. {role.mandate}{tools}"), _END)
        return (*self._openings[key], *self.ask(brief))

    def observe(self, *texts: str) -> tuple[int, ...]:
        told = [token for text in texts for token in (_TOOL, *self.encode(text), _END)]
        return (*told, _ASSISTANT)

    def ask(self, text: str) -> tuple[int, ...]:
        return (_USER, *self.encode(text), _END, _ASSISTANT)

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(ord(character) + len(_MARKERS) for character in text)

    def decode(self, ids: tuple[int, ...]) -> str:
        kept = ids[:-1] if ids and ids[-1] == _END else ids
        return "".join(
            _MARKERS[token] if token < len(_MARKERS) else chr(token - len(_MARKERS)) for token in kept
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One message of a transcript; the text of "system" is for `read_opening`.

    Example: Said(speaker="assistant", text='{"vote": "accept"}')
    """

    speaker: Speaker
    text: str


class MessageChat(PlainChat):
    """A PlainChat whose openings keep the whole role, so that any other chat can open the same transcript.

    Example: [one.speaker for one in MessageChat().read(MessageChat().ask("Vote."))] == ["user"]
    """

    def open(self, role: Role, brief: str, *, with_tools: bool) -> tuple[int, ...]:
        return (_SYSTEM, *self.encode(_write_opening(role, with_tools)), _END, *self.ask(brief))

    def read(self, ids: Sequence[int]) -> list[Said]:
        """Return the messages in order; an assistant's header with nothing after it is none."""
        messages: list[Said] = []
        start = 0
        while start < len(ids):
            mark = ids[start]
            if mark == _END:  # it closes a turn that a limit had cut
                start += 1
                continue
            end = start + 1
            while end < len(ids) and ids[end] >= len(_MARKERS):
                end += 1
            if mark >= len(_MARKERS):
                raise ValueError(f"a message begins with no mark at token {start}")
            is_header = mark == _ASSISTANT and end == len(ids)
            if not is_header or end > start + 1:
                text = "".join(chr(token - len(_MARKERS)) for token in ids[start + 1 : end])
                messages.append(Said(speaker=_SPEAKERS[mark - 1], text=text))
            start = end
        return messages


@lru_cache(maxsize=256)
def read_opening(text: str) -> tuple[Role, bool]:
    """Return the role that an opening introduces, and whether with its tools.

    A role of the registry is returned itself, so that a chat that knows it says what it always says.
    """
    heading = json.loads(text)
    tools = heading.pop("tools")
    with_tools = tools is not None
    known = ROLES.get(heading["name"])
    if known is not None and _write_opening(known, with_tools) == text:
        return known, with_tools
    return Role(**heading, answer=Answer, tools=tuple(Tool(**tool) for tool in tools or ())), with_tools


def _write_opening(role: Role, with_tools: bool) -> str:
    tools = [
        {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
        for tool in role.tools
    ]
    heading = {"name": role.name, "title": role.title, "mandate": role.mandate, "letter": role.letter}
    return json.dumps({**heading, "tools": tools if with_tools else None})

"""A chat whose transcripts read back as messages: for seats of several engines, and endpoints without ids.

A token is a character. An opening keeps the whole role, so that any other chat can open the same transcript.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from roles.base import Answer, Role, Tool
from roles.registry import ROLES

Speaker = Literal["system", "user", "tool", "assistant"]

_SPEAKERS: tuple[Speaker, ...] = ("system", "user", "tool", "assistant")
_END, _SYSTEM, _USER, _TOOL, _ASSISTANT = range(len(_SPEAKERS) + 1)
_NUM_MARKS = len(_SPEAKERS) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One message of a transcript; the text of "system" is for `read_opening`.

    Example: Said(speaker="assistant", text='{"vote": "accept"}')
    """

    speaker: Speaker
    text: str


class MessageChat:
    """Ids 0-4 are marks, every other id a character; text never encodes to a mark.

    Example: [one.speaker for one in MessageChat().read(MessageChat().ask("Vote."))] == ["user"]
    """

    end_id = _END

    def open(self, role: Role, brief: str, *, with_tools: bool) -> tuple[int, ...]:
        return (_SYSTEM, *self.encode(_write_opening(role, with_tools)), _END, *self.ask(brief))

    def observe(self, *texts: str) -> tuple[int, ...]:
        said = [token for text in texts for token in (_TOOL, *self.encode(text), _END)]
        return (*said, _ASSISTANT)

    def ask(self, text: str) -> tuple[int, ...]:
        return (_USER, *self.encode(text), _END, _ASSISTANT)

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(ord(character) + _NUM_MARKS for character in text)

    def decode(self, ids: tuple[int, ...]) -> str:
        kept = ids[:-1] if ids and ids[-1] == _END else ids
        return "".join(
            f"<|{('end', *_SPEAKERS)[token]}|>" if token < _NUM_MARKS else chr(token - _NUM_MARKS)
            for token in kept
        )

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
            while end < len(ids) and ids[end] >= _NUM_MARKS:
                end += 1
            if mark >= _NUM_MARKS:
                raise ValueError(f"a message begins with no mark at token {start}")
            is_header = mark == _ASSISTANT and end == len(ids)
            if not is_header or end > start + 1:
                text = "".join(chr(token - _NUM_MARKS) for token in ids[start + 1 : end])
                messages.append(Said(speaker=_SPEAKERS[mark - 1], text=text))
            start = end
        return messages


def read_opening(text: str) -> tuple[Role, bool]:
    """Return the role that an opening introduces, and whether with its tools.

    A role of the registry is returned itself, so that a chat that knows it says what it always says.
    """
    return _read_opening(text)


def _write_opening(role: Role, with_tools: bool) -> str:
    tools = [
        {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
        for tool in role.tools
    ]
    heading = {"name": role.name, "title": role.title, "mandate": role.mandate, "letter": role.letter}
    return json.dumps({**heading, "tools": tools if with_tools else None})


@lru_cache(maxsize=256)
def _read_opening(text: str) -> tuple[Role, bool]:
    heading = json.loads(text)
    tools = tuple(Tool(**tool) for tool in heading.pop("tools") or ())
    with_tools = json.loads(text)["tools"] is not None
    known = ROLES.get(heading["name"])
    if known is not None and _write_opening(known, with_tools) == text:
        return known, with_tools
    return Role(**heading, answer=Answer, tools=tools), with_tools

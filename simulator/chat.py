"""The chat protocol: transcripts become token ids by appending, so sampled ids are never tokenised again."""

from typing import Protocol

from roles.base import Role


class Chat(Protocol):
    """Text in, token ids out; every text is neutralised (no special token can be smuggled in)."""

    end_id: int  # the end-of-turn token

    def open(self, role: Role, brief: str, *, with_tools: bool) -> tuple[int, ...]:
        """Return a new transcript up to and including the assistant's header."""
        ...

    def observe(self, *texts: str) -> tuple[int, ...]:
        """Return ids to append after a finished assistant turn: one text per tool call, header included."""
        ...

    def ask(self, text: str) -> tuple[int, ...]:
        """Return ids of a further user message after a finished assistant turn, header included."""
        ...

    def encode(self, text: str) -> tuple[int, ...]:
        """Return ids of assistant text (as a demonstration writes it), end-of-turn not included."""
        ...

    def decode(self, ids: tuple[int, ...]) -> str:
        """Text of sampled ids, end-of-turn left out, tool-call markers kept."""
        ...

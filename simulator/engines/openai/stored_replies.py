"""A file of every reply that was paid for: what was asked before is answered from it, at no cost."""

import hashlib
import json
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from roles.errors import UserError
from simulator.engines.openai.reply import ChatReply
from simulator.line_files import LineFile, read_lines


class StoredReply(BaseModel):
    """One line: a reply, or (reply None) the cost of a request that failed.

    Example: StoredReply(key="5c0f...", reply=ChatReply(text="B", cost=0.002), cost=0.002)
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    key: str  # see `make_key`
    reply: ChatReply | None
    cost: float


def make_key(session: str, request: dict[str, Any]) -> str:
    """Name a request of one session; equal requests of other sessions have other names."""
    content = json.dumps([session, request], sort_keys=True).encode()
    return hashlib.sha256(content).hexdigest()


class ReplyFile:
    """Replies by request, on disk before they are used; a context manager, one process at a time.

    Example: with ReplyFile(Path("runs/replies.jsonl")) as replies: replies.find(key)
    """

    def __init__(self, path: Path) -> None:
        """Open or make the file; a last line that a kill cut short is dropped.

        Raises:
            UserError: a damaged line, or another process writes to the file.
        """
        self._file = LineFile(path, alone=True)
        self._replies: dict[str, ChatReply] = {}
        self.spent = 0.0  # of everything in the file
        try:
            self._read()
        except UserError:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def find(self, key: str) -> ChatReply | None:
        """Return the stored reply of a request."""
        return self._replies.get(key)

    def add(self, key: str, reply: ChatReply | None, cost: float) -> None:
        """Keep a reply or a failure's cost; it is on disk when this returns."""
        line = StoredReply(key=key, reply=reply, cost=cost)
        self._file.add(line.model_dump_json().encode())
        self._note(line)

    def _read(self) -> None:
        for number, line in enumerate(read_lines(self._file.path), start=1):
            try:
                self._note(StoredReply.model_validate_json(line))
            except ValidationError:
                raise UserError(
                    f"{self._file.path}:{number}: damaged line; delete it to have its reply asked again"
                ) from None

    def _note(self, line: StoredReply) -> None:
        self.spent += line.cost
        if line.reply is not None:
            self._replies[line.key] = line.reply

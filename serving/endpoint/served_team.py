"""Whoever plays behind the endpoint, and cases as they come in messages."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from roles.errors import UserError
from roles.registry import ROLES
from roles.team import RECONCILER
from scenarios.written.written_case import MAX_CASE_BYTES, FreeCase
from simulator.chat import Chat
from simulator.engines.base import Sampling
from simulator.game import MakeGame

MARKDOWN_START = "---"


class ServedTeam(Protocol):
    """A team as the endpoint needs it; `emads.load_team` returns such teams."""

    @property
    def label(self) -> str:
        """Names the team in minutes."""
        ...

    @property
    def stream(self) -> str:
        """Begins the names of its sessions; the same stream samples the same."""
        ...

    @property
    def chat(self) -> Chat: ...

    @property
    def sampling(self) -> Sampling: ...

    @property
    def rounds(self) -> int:
        """Rounds of votes at most, in the protocol `assess`."""
        ...

    @property
    def make_game(self) -> MakeGame:
        """Makes the joint game of a case, in the style of prompts that the seats read."""
        ...

    def read_case(self, path: Path) -> FreeCase:
        """Return a written case as this team reads it.

        Raises:
            UserError: a damaged file, or a case that this team cannot play.
        """
        ...


def read_message_case(team: ServedTeam, text: str) -> FreeCase:
    """Return the case in a message: YAML, or Markdown that begins with YAML between two `---` lines.

    A message may fence it as a code block, as chat models do.

    Raises:
        UserError: no case, or one that this team cannot play; names line, field and remedy.
    """
    text = _unfence(text.strip())
    if len(text.encode(errors="surrogatepass")) > MAX_CASE_BYTES:
        raise UserError(f"the case has more than {MAX_CASE_BYTES} bytes; it is a page or two, shorten it")
    suffix = ".md" if text.startswith(MARKDOWN_START) else ".yaml"
    with tempfile.TemporaryDirectory(prefix="emads-case-") as folder:
        path = Path(folder) / f"message{suffix}"
        path.write_bytes(text.encode(errors="replace"))
        try:
            return team.read_case(path)
        except UserError as error:
            raise UserError(str(error).replace(str(path), "case")) from None


def list_role_models(name: str) -> Mapping[str, str]:
    """Return the model name of each role: "demo/cto" of cto."""
    return {f"{name}/{role}": role for role in ROLES}


def check_seat(case: FreeCase, seat: str) -> None:
    """Refuse a seat that the case does not have.

    Raises:
        UserError: names the seats.
    """
    if seat not in case.seats:
        note = f"; {RECONCILER} decides: call decide" if seat == RECONCILER else ""
        raise UserError(f"no seat {seat!r} in this case (seats: {', '.join(case.seats)}){note}")


def _unfence(text: str) -> str:
    lines = text.split("\n")
    if len(lines) > 2 and lines[0].startswith("```") and lines[-1].strip() == "```":
        return "\n".join(lines[1:-1])
    return text

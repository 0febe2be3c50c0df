"""The protocol of a joint game, as the graph's nodes need it; a family of joint cases implements it.

Nodes and state know no schema: they pass on what `read_...` returned, as JSON values, to `write_...`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from scenarios.team.playable import PlayableCase

Parsed = dict[str, Any]  # JSON values of one report or decision


class TeamGame(Protocol):
    """Reads the texts of one case's seats and writes the briefs between them; never sees the truth."""

    def read_report(self, text: str) -> Parsed | None:
        """Read a report; None for a malformed one."""
        ...

    def read_decision(self, text: str) -> Parsed | None:
        """Read a decision; None for a malformed one."""
        ...

    def read_vote(self, text: str) -> str | None:
        """Read a vote, "accept" or "object"; None for a malformed one."""
        ...

    def write_decision_brief(
        self, reports: Mapping[str, Parsed | None], ruled_out: Collection[str] = ()
    ) -> str:
        """Write what ReconcileGPT decides from: all reports by seat, and options that are ruled out."""
        ...

    def write_vote_brief(self, decision: Parsed | None) -> str:
        """Write what a specialist votes on."""
        ...

    def write_objection_brief(self, objectors: Sequence[str]) -> str:
        """Write what ReconcileGPT reads when these seats object to its draft."""
        ...


MakeGame = Callable[[PlayableCase], TeamGame]

"""The protocol of a joint game, as the graph's nodes need it; a family of joint cases implements it.

Nodes and state know no schema: they pass on what `read_...` returned, as JSON values, to `write_...`.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from roles.base import Role
from scenarios.base import ToolCall
from scenarios.team.playable import PlayableCase

Parsed = dict[str, Any]  # JSON values of one report, question, offer, decision or vote
Reports = Mapping[str, Parsed | None]  # by seat; None for a malformed report


class TeamGame(Protocol):
    """Reads the texts of one case's seats and writes the briefs between them.

    It may check what seats claim. What it returns, and so what the state holds, never tells the truth of the
    verifier.
    """

    @property
    def most_questions(self) -> int:
        """The most questions that ReconcileGPT may ask in an episode."""

    def without_questions(self) -> "TeamGame":
        """Return the same game in which ReconcileGPT asks nothing."""

    def read_report(self, seat: str, text: str) -> Parsed | None:
        """Read a report and check its claims; None for a malformed one."""

    def read_decision(self, reports: Reports, text: str) -> Parsed | None:
        """Read a decision on these reports; None for a malformed one."""

    def read_ask(self, text: str) -> Parsed | None:
        """Read a question, with the `seat` that it is for; None where the text asks nothing."""

    def read_reply(self, seat: str, ask: Parsed, known: Parsed | None, text: str) -> Parsed | None:
        """Read a seat's reply to a question; None where it adds nothing to its `known` report."""

    def add_offer(self, known: Parsed | None, offer: Parsed | None) -> Parsed | None:
        """Return the seat's report with what its reply added."""

    def read_vote(self, text: str) -> Parsed | None:
        """Read a vote: `vote` is "accept" or "object", `reason` a text; None for a malformed one."""

    def write_report_brief(self, seat: str, *, with_tools: bool = True) -> str:
        """Write what a specialist reports from."""

    def write_decision_brief(self, reports: Reports, ruled_out: Collection[str] = ()) -> str:
        """Write what ReconcileGPT decides from: all reports by seat, and options that are ruled out."""

    def write_ask(self, seat: str, ask: Parsed) -> str:
        """Write the question as the seat reads it."""

    def write_vote_brief(self, decision: Parsed | None, seat: str, reports: Reports) -> str:
        """Write what a specialist votes on."""

    def write_objection_brief(self, votes: Reports) -> str:
        """Write what ReconcileGPT reads when seats object to its draft."""

    def prompt_role(self, seat: str, *, with_tools: bool = True) -> Role:
        """Return the role with its whole system text and its tools in this game, under a name of its own."""

    def call_tool(self, seat: str, call: ToolCall, reports: Reports) -> str:
        """Answer a seat's tool call; `reports` are what ReconcileGPT's tools reckon with.

        Raises:
            ToolError: a call that cannot be answered.
        """


MakeGame = Callable[[PlayableCase], TeamGame]

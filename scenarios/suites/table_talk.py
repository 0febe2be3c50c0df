"""Common part of the suites' games: everybody speaks once, ReconcileGPT drafts, the seats vote. No tools."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field

from roles.base import Answer, AnswerError, Role, free_text, parse_answer
from roles.registry import ROLES
from roles.team import RECONCILER
from scenarios.base import ToolCall, ToolError
from scenarios.company.records import Part
from scenarios.team.playable import PublicCase, Seat

Parsed = dict[str, Any]
Reports = Mapping[str, Parsed | None]  # by seat; None for one that cannot be read
MAX_WORDS = 150  # of a statement or reason, as the others read it
_MAX_CHARS = 4_000
Words = Annotated[str, Field(max_length=_MAX_CHARS), free_text(_MAX_CHARS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TalkCase:
    """A case that seats talk about.

    Example: read_hidden_profiles(Path("benchmark.json"))[0].key == "hidden-profile/1"
    """

    key: str
    situation: str  # what everybody knows
    options: tuple[str, ...]
    seats: Mapping[str, Seat]

    @property
    def public(self) -> PublicCase:
        """Return what everybody knows; such a case has neither budget nor company options."""
        return PublicCase(sector="", situation=self.situation, options={}, budget=0, seats=tuple(self.seats))

    def parts_of(self, seat: str, option: str) -> tuple[Part, ...] | None:
        """Return None: nothing is bought."""
        return None


class TalkGame(ABC):
    """Reads and writes what every suite's game does alike; a game adds its schemas, briefs and `settle`."""

    most_questions = 0
    name: ClassVar[str]
    mandates: ClassVar[Mapping[bool, str]]  # of ReconcileGPT (True) and of the other seats
    report: ClassVar[type[Answer]]
    decision: ClassVar[type[Answer]]
    vote: ClassVar[type[Answer]]

    def without_questions(self) -> Self:
        """Return the game: nobody asks in it."""
        return self

    @abstractmethod
    def settle(self, parsed: Parsed) -> Parsed | None:
        """Return an answer of the right schema as the case reads it; None for one that the case forbids."""

    @abstractmethod
    def describe(self, parsed: Parsed) -> str:
        """Say what an answer chooses, in words for the others."""

    @abstractmethod
    def write_decision_brief(self, reports: Reports, ruled_out: Collection[str] = ()) -> str:
        """Write what ReconcileGPT drafts from."""

    def read_report(self, seat: str, text: str) -> Parsed | None:
        """Read a seat's statement; None for a malformed one."""
        return self._read(text, self.report)

    def read_decision(self, reports: Reports, text: str) -> Parsed | None:
        """Read ReconcileGPT's draft; None for a malformed one."""
        return self._read(text, self.decision)

    def read_vote(self, text: str) -> Parsed | None:
        """Read a vote; None for a malformed one."""
        return self._read(text, self.vote)

    def read_ask(self, text: str) -> Parsed | None:
        """Return None: ReconcileGPT asks nothing."""
        return None

    def read_reply(self, seat: str, ask: Parsed, known: Parsed | None, text: str) -> Parsed | None:
        """Return None: nobody is asked."""
        return None

    def add_offer(self, known: Parsed | None, offer: Parsed | None) -> Parsed | None:
        """Return the statement as it was."""
        return known

    def write_ask(self, seat: str, ask: Parsed) -> str:
        """Return "": nobody is asked."""
        return ""

    def write_vote_brief(self, decision: Parsed | None, seat: str, reports: Reports) -> str:
        """Write what all said and what ReconcileGPT drafted."""
        others = {one: said for one, said in reports.items() if one != seat}
        return f"{self.write_statements(others)}\n{self._write_draft(decision)}\nVote."

    def write_objection_brief(self, votes: Reports) -> str:
        """Write the objections to the draft."""
        lines = [
            f"- {ROLES[seat].title} objects: {shorten(vote['reason'])}"
            for seat, vote in votes.items()
            if vote is not None and vote["vote"] == "object"
        ]
        return "\n".join([*lines, "Draft again."])

    def write_statements(self, reports: Reports) -> str:
        """Write one line for each seat."""
        return "\n".join(
            f"- {ROLES[seat].title} said nothing that could be read."
            if said is None
            else f"- {ROLES[seat].title} prefers {self.describe(said)}: {shorten(said['say'])}"
            for seat, said in reports.items()
        )

    def prompt_role(self, seat: str, *, with_tools: bool = True) -> Role:
        """Return the seat as this game introduces it."""
        is_chair = seat == RECONCILER
        return Role(
            name=f"{self.name}-{seat}",
            title=ROLES[seat].title,
            mandate=self.mandates[is_chair],
            answer=self.decision if is_chair else self.report,
        )

    def call_tool(self, seat: str, call: ToolCall, reports: Reports) -> str:
        """Refuse the call.

        Raises:
            ToolError: always.
        """
        raise ToolError("there are no tools here")

    def _write_draft(self, decision: Parsed | None) -> str:
        if decision is None:
            return "ReconcileGPT drafted nothing that could be read."
        return f"The draft: {self.describe(decision)}.\nReason: {shorten(decision['reason'])}"

    def _read(self, text: str, schema: type[Answer]) -> Parsed | None:
        try:
            return self.settle(parse_answer(text, schema).model_dump(mode="json"))
        except AnswerError:
            return None


def shorten(text: str) -> str:
    """Return at most MAX_WORDS words in one line."""
    return " ".join(text.split()[:MAX_WORDS]) or "(nothing)"

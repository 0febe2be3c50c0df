"""The team's joint game on one case, as the graph plays it: offers, questions, one funded plan, votes.

Reads what seats write and writes what passes between seats; values in and out are plain JSON. Reports come
out of it checked: what stands in them holds by the structures.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeVar

from roles.base import Answer, AnswerError, Role
from roles.team import MAX_REASON_WORDS, RECONCILER, Ask, Decision, OfferReply, Report, Vote
from scenarios.base import Style, ToolCall
from scenarios.company.knapsack import Same
from scenarios.company.records import Part
from scenarios.team.listed_seat import is_listed
from scenarios.team.offers import (
    CheckedReport,
    add_offer,
    check_reply,
    check_report,
    dump_offer,
    dump_report,
    load_offer,
    load_report,
    load_table,
    offers_on,
)
from scenarios.team.playable import PlayableCase
from scenarios.team.reading import read_ask, read_decision, read_reply, read_report, read_vote
from scenarios.team.texts import full
from scenarios.team.texts.table_texts import TEXTS, TableTexts
from scenarios.team.tools import (
    RECONCILER_TOOLS,
    SPECIALIST_TOOLS,
    call_reconciler_tool,
    call_specialist_tool,
    has_tools,
)

Parsed = dict[str, Any]
Reports = Mapping[str, Parsed | None]  # seat -> its checked report; None for one that cannot be read

A = TypeVar("A", bound=Answer)


@dataclass(frozen=True, slots=True)
class PlanGame:
    """The game on one case in one style of prompts.

    Example: PlanGame(generate("train", 0, 7, 2)).read_vote('{"vote": "object"}')["vote"] == "object"
    """

    case: PlayableCase
    style: Style = "full"
    questions: int | None = None  # most questions of ReconcileGPT; None: one in full style, none in short
    own_styles: Mapping[str, Style] = field(default_factory=dict)  # of seats that read another style

    def style_of(self, seat: str) -> Style:
        """The style of what a seat reads."""
        return self.own_styles.get(seat, self.style)

    @property
    def most_questions(self) -> int:
        """The most questions that ReconcileGPT may ask before it decides."""
        return (1 if self.style_of(RECONCILER) == "full" else 0) if self.questions is None else self.questions

    def without_questions(self) -> "PlanGame":
        """The same game in which ReconcileGPT asks nothing."""
        return replace(self, questions=0)

    def read_report(self, seat: str, text: str) -> Parsed | None:
        """The report with its claims checked, as JSON values; None for a malformed report."""
        report = _check_report(Same(self.case), seat, text)
        return None if report is None else dump_report(report)

    def read_decision(self, reports: Reports, text: str) -> Parsed | None:
        """The decision; None for a malformed one, or one about offers that are not on the table."""
        decision: Decision | None = _read(lambda: read_decision(self.case.public, self._table(reports), text))
        return None if decision is None else decision.model_dump(mode="json")

    def read_ask(self, text: str) -> Parsed | None:
        """The question as {"seat", "option", "cost_at_most"}; None where the text asks nothing."""
        message = _read(lambda: read_ask(self.case.public, text))
        return None if message is None else message.ask.model_dump()

    def read_reply(self, seat: str, ask: Parsed, known: Parsed | None, text: str) -> Parsed | None:
        """The offer that the reply adds to the seat's report; None where none holds."""
        reply: OfferReply | None = _read(lambda: read_reply(text))
        if reply is None:
            return None
        report = None if known is None else load_report(known)
        offer = check_reply(self.case, Ask.model_validate({**ask, "seat": seat}), report, reply)
        return None if offer is None else dump_offer(offer)

    def add_offer(self, known: Parsed | None, offer: Parsed | None) -> Parsed | None:
        """The seat's report with what its reply added."""
        if offer is None:
            return known
        return dump_report(add_offer(None if known is None else load_report(known), load_offer(offer)))

    def read_vote(self, text: str) -> Parsed | None:
        """The vote as {"vote", "reason"}; None for a malformed one."""
        vote: Vote | None = _read(lambda: read_vote(text))
        return None if vote is None else vote.model_dump()

    def write_report_brief(self, seat: str, *, with_tools: bool = True) -> str:
        """Write what a specialist reads first. Without tools it holds all that tools would describe."""
        return self._texts(seat).write_report_brief(self.case, self.case.seats[seat], with_tools=with_tools)

    def write_decision_brief(self, reports: Reports, ruled_out: Collection[str] = ()) -> str:
        """Write what ReconcileGPT decides from; `ruled_out` are options that may no longer be chosen.

        Where it may ask, small models also read how much each seat's offer may cost.
        """
        return self._texts(RECONCILER).write_decision_brief(
            self.case.public, self._table(reports), list(ruled_out), may_ask=self.most_questions > 0
        )

    def write_ask(self, seat: str, ask: Parsed) -> str:
        """Write what the seat reads that is asked for another offer."""
        return self._texts(seat).write_ask(Ask.model_validate({**ask, "seat": seat}))

    def write_vote_brief(self, decision: Parsed | None, seat: str, reports: Reports) -> str:
        """Prompt of a specialist's vote, after its own brief."""
        read = None if decision is None else Decision.model_validate(decision)
        funded: dict[str, str] = {}
        if read is not None:
            offers = {offer.label: offer for offer in offers_on(self._table(reports), read.option)}
            chosen = [offers[label] for label in read.fund if label in offers]
            funded = {offer.seat: ", ".join(offer.choice) for offer in chosen}
        return self._texts(seat).write_vote_brief(self.case.public, read, funded, seat)

    def write_objection_brief(self, votes: Mapping[str, Parsed | None]) -> str:
        """Write what ReconcileGPT reads when seats object to its decision."""
        objections = {
            seat: Vote(vote="object", reason=" ".join(vote["reason"].split()[:MAX_REASON_WORDS]))
            for seat, vote in votes.items()
            if vote is not None and vote["vote"] == "object"
        }
        return self._texts(RECONCILER).write_objection_brief(objections)

    def prompt_role(self, seat: str, *, with_tools: bool = True) -> Role:
        """The role as it plays at the table: its whole system text, and its tools there.

        Its name tells prompts apart that differ: kind of seat, style, tools, questions, offers per option.
        """
        public, style = self.case.public, self.style_of(seat)
        uses_tools = with_tools and style == "full"
        marks = f"{style}-{public.offers_per_option}"
        answer: type[Answer]
        if seat == RECONCILER:
            marks += f"-{self.most_questions}"
            mandate = self._texts(seat).write_reconciler_system(
                public, with_tools=uses_tools, most_questions=self.most_questions
            )
            tools, answer = RECONCILER_TOOLS, Decision
        else:
            own = self.case.seats[seat]
            uses_tools = uses_tools and has_tools(own)
            mandate = self._texts(seat).write_specialist_system(own, public, with_tools=uses_tools)
            tools, answer = SPECIALIST_TOOLS, Report
            if "structures" not in own.facts:
                marks += "-listed" if is_listed(own) else "-words"
        return Role(
            name=f"{seat}+{marks}{'' if uses_tools else '-plain'}",
            title=full.title_of(seat),
            mandate=mandate,
            answer=answer,
            tools=tools if uses_tools else (),
        )

    def call_tool(self, seat: str, call: ToolCall, reports: Reports) -> str:
        """The observation of a seat's tool; ReconcileGPT's are computed from the reports alone.

        Raises:
            ToolError: unknown tool, other arguments, nothing of that name.
        """
        if seat == RECONCILER:
            return call_reconciler_tool(self.case.public, self._table(reports), call)
        answer = call_specialist_tool(self.case, self.case.seats[seat], call)
        if isinstance(answer, Part):
            return self._texts(seat).write_measured(self.case.seats[seat], answer)
        return answer

    def _table(self, reports: Reports) -> dict[str, CheckedReport | None]:
        """The reports by seat, in the order of the seats."""
        return load_table({seat: reports.get(seat) for seat in self.case.seats})

    def _texts(self, seat: str) -> TableTexts:
        return TEXTS[self.style_of(seat)]


@lru_cache(maxsize=512)  # reports of a joint step; a cached one keeps its case alive
def _check_report(case: Same[PlayableCase], seat: str, text: str) -> CheckedReport | None:
    """A report read and checked once: play, scores, credit and metrics all ask for it."""
    try:
        report, faults = read_report(text)
    except AnswerError:
        return None
    return check_report(case.value, seat, report, faults)


def _read(read: Callable[[], A]) -> A | None:
    try:
        return read()
    except AnswerError:
        return None

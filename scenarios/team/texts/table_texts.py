"""The wording of one style, as `full` and `short` both offer it: one function per text."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from roles.team import Ask, Decision, OfferReply, Report, Vote
from scenarios.base import Style
from scenarios.company.records import Part
from scenarios.team.offers import Table
from scenarios.team.playable import PlayableCase, PublicCase, Seat
from scenarios.team.texts import full, short


class TableTexts(Protocol):
    """The functions of a module of texts."""

    def write_specialist_system(self, seat: Seat, public: PublicCase, *, with_tools: bool) -> str: ...

    def write_reconciler_system(
        self, public: PublicCase, *, with_tools: bool, most_questions: int
    ) -> str: ...

    def write_report_brief(self, case: PlayableCase, seat: Seat, *, with_tools: bool) -> str: ...

    def write_report(self, case: PlayableCase, seat: str, report: Report) -> str: ...

    def write_measured(self, seat: Seat, part: Part) -> str: ...

    def write_decision_brief(
        self, public: PublicCase, table: Table, ruled_out: Sequence[str] = (), *, may_ask: bool = False
    ) -> str: ...

    def write_decision(self, decision: Decision) -> str: ...

    def write_ask(self, ask: Ask) -> str: ...

    def write_reply(self, case: PlayableCase, seat: str, reply: OfferReply) -> str: ...

    def write_vote_brief(
        self, public: PublicCase, decision: Decision | None, funded: Mapping[str, str], seat: str
    ) -> str: ...

    def write_objection_brief(self, objections: Mapping[str, Vote]) -> str: ...


TEXTS: Mapping[Style, TableTexts] = {"full": full, "short": short}

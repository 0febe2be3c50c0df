"""Answers of the team's seats in a joint episode: report with offers, reply to a question, decision, vote."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field

from roles.base import Answer, free_text, free_texts

SPECIALISTS: tuple[str, ...] = ("cto", "coo", "risk", "cost")
RECONCILER = "reconcile"
TEAM_ROLES: tuple[str, ...] = (*SPECIALISTS, RECONCILER)  # who plays generated cases; other roles work alone
NO_OPTION = "none"  # the decision's option when the case goes to a human
MAX_NOTE_WORDS = 40

MAX_NOTE_CHARS = 400
MAX_REASON_WORDS = 40  # of a vote, as ReconcileGPT reads it
MAX_REASON_CHARS = 600
MAX_CONFLICTS = 10
MOST_FIGURE = 1_000_000
MAX_OFFERS = 50
MAX_OPTIONS = 10

Figure = Annotated[int, Field(ge=-MOST_FIGURE, le=MOST_FIGURE)]  # k$
Options = Annotated[list[str], Field(max_length=MAX_OPTIONS)]
Note = Annotated[str, Field(max_length=MAX_NOTE_CHARS), free_text(MAX_NOTE_CHARS)]
Reason = Annotated[str, Field(max_length=MAX_REASON_CHARS), free_text(MAX_REASON_CHARS)]
Conflicts = Annotated[
    tuple[str, ...], Field(max_length=MAX_CONFLICTS, strict=False), free_texts(MAX_CONFLICTS)
]


class Offer(Answer):
    """One plan part that a seat offers to have funded.

    Example: Offer(option="A", part=["spare gateway"], cost=9, worth=14)
    """

    option: str
    part: Annotated[list[str], Field(min_length=1, max_length=20)]  # names of what is bought
    cost: Figure  # k$ of the one budget
    worth: Figure  # k$ gained over buying nothing on this option


class Report(Answer):
    """All that ReconcileGPT learns from one seat.

    Example: Report(offers=[Offer(option="A", part=["spare gateway"], cost=9, worth=14)], needs=["A"],
                    veto=[], note="A fails its SLO without the spare gateway.")
    """

    offers: Annotated[list[Offer], Field(max_length=MAX_OFFERS)]
    needs: Options  # options that break the seat's limit unless it buys
    veto: Options  # options that break the seat's limit whatever it buys
    note: Note = ""  # at most MAX_NOTE_WORDS words


class Ask(Answer):
    """A question of ReconcileGPT: another offer of one seat on one option.

    Example: Ask(seat="cto", option="A", cost_at_most=15)
    """

    seat: str
    option: str
    cost_at_most: Annotated[int, Field(ge=0, le=MOST_FIGURE)]


class AskMessage(Answer):
    """ReconcileGPT's message where it asks before it decides."""

    ask: Ask


class OfferReply(Answer):
    """A seat's reply to a question: one more offer, or none.

    Example: OfferReply(offer=Offer(option="A", part=["faster switch"], cost=15, worth=22))
    """

    offer: Offer | None


class Decision(Answer):
    """ReconcileGPT's decision: one option and the offers that are funded on it.

    Example: Decision(option="B", fund=["cto", "risk"], escalate=False, conflicts=[],
                      reason="B with both offers is worth 71 at cost 38 of 40.")
    """

    option: str  # an option, or "none" when it escalates
    fund: Annotated[list[str], Field(max_length=20)]  # labels of offers, as the table shows them
    escalate: bool  # hand the case to a person: no option can be run within the budget
    conflicts: Conflicts = ()  # where seats pull apart
    reason: Reason = ""


class Vote(Answer):
    """A seat's answer to the decision.

    Example: Vote(vote="object", reason="B misses the deadline without the crew.")
    """

    vote: Literal["accept", "object"]
    reason: Note = ""


_SEAT_FORMS: Mapping[str, type[Answer]] = {"report": Report, "reply": OfferReply, "vote": Vote}
_RECONCILER_FORMS: Mapping[str, type[Answer]] = {"decide": Decision, "ask": AskMessage}


def list_forms(seat: str) -> Mapping[str, type[Answer]]:
    """Return what a seat may answer at the table, by its name for people; the usual first answer is first."""
    return _RECONCILER_FORMS if seat == RECONCILER else _SEAT_FORMS


def guess_form(seat: str, heard: Sequence[str]) -> str:
    """Return the form that the last message to a seat most likely asks for."""
    forms = list(list_forms(seat))
    if len(heard) <= 1 or seat == RECONCILER:
        return forms[0]
    return "vote" if "vote" in heard[-1].lower() else "reply"

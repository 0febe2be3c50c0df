"""Strict reading of what the seats write. A text that is no answer raises AnswerError and nothing else."""

from collections.abc import Mapping

from roles.base import AnswerError, parse_answer
from roles.team import MAX_NOTE_WORDS, NO_OPTION, AskMessage, Decision, OfferReply, Report, Vote
from scenarios.team.offers import Table, offers_on
from scenarios.team.playable import PublicCase


def read_report(text: str) -> Report:
    """The report in the text.

    Raises:
        AnswerError: not strict JSON of the schema, or a note of more than MAX_NOTE_WORDS words.
    """
    report = parse_answer(text, Report)
    if len(report.note.split()) > MAX_NOTE_WORDS:
        raise AnswerError("schema", f"note: at most {MAX_NOTE_WORDS} words")
    return report


def read_decision(public: PublicCase, table: Table, text: str) -> Decision:
    """The decision in the text, about options and offers that are on the table.

    Raises:
        AnswerError: malformed, an unknown option or label, two offers of one seat, or `escalate` that
            disagrees with the option.
    """
    decision = parse_answer(text, Decision)
    if decision.option not in (*public.base, NO_OPTION):
        raise AnswerError("unknown_id", f"options are {' '.join(public.base)} {NO_OPTION}")
    if decision.escalate != (decision.option == NO_OPTION) or (decision.escalate and decision.fund):
        raise AnswerError(
            "inconsistent", f"escalate goes with option {NO_OPTION} and no funding, and only then"
        )
    seats: Mapping[str, str] = {offer.label: offer.seat for offer in offers_on(table, decision.option)}
    unknown = [label for label in decision.fund if label not in seats]
    if unknown:
        raise AnswerError("unknown_id", f"{unknown[0]!r} has no offer on {decision.option}")
    funded = [seats[label] for label in decision.fund]
    if len(set(funded)) != len(funded):
        raise AnswerError("duplicate_id", "fund names one seat twice")
    return decision


def read_ask(public: PublicCase, text: str) -> AskMessage:
    """The question in the text.

    Raises:
        AnswerError: malformed, or about an unknown seat or option.
    """
    message = parse_answer(text, AskMessage)
    if message.ask.seat not in public.seats:
        raise AnswerError("unknown_id", f"seats are {' '.join(public.seats)}")
    if message.ask.option not in public.options:
        raise AnswerError("unknown_id", f"options are {' '.join(public.options)}")
    return message


def read_reply(text: str) -> OfferReply:
    """A seat's reply to a question.

    Raises:
        AnswerError: malformed.
    """
    return parse_answer(text, OfferReply)


def read_vote(text: str) -> Vote:
    """The vote.

    Raises:
        AnswerError: malformed.
    """
    return parse_answer(text, Vote)

"""Strict reading of what the seats write. A text that is no answer raises AnswerError and nothing else."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from roles.base import AnswerError, parse_answer, parse_strict_json, say_fault, split_answer
from roles.team import (
    MAX_OFFERS,
    MAX_OPTIONS,
    NO_OPTION,
    AskMessage,
    Decision,
    Offer,
    OfferReply,
    Report,
    Vote,
)
from scenarios.team.offers import Table, offers_on
from scenarios.team.playable import PublicCase


def read_report(text: str) -> tuple[Report, tuple[str, ...]]:
    """The report in the text, and a line for whatever in it had to be struck out.

    What is wrong costs its own place: an offer, an entry of `needs` or `veto`, a key.

    Raises:
        AnswerError: not one strict JSON object that ends the message, or one without a list of offers.
    """
    value = parse_strict_json(split_answer(text)[1])
    if not isinstance(value.get("offers"), list):
        raise AnswerError("schema", "offers: not a list")
    faults = [f"{key[:20]}: no such key" for key in value if key not in Report.model_fields]
    offers: list[Offer] = []
    for number, offer in enumerate(value["offers"], start=1):
        try:
            offers.append(Offer.model_validate(offer))
        except ValidationError as error:
            faults.append(f"offer {number}: {say_fault(error)}")
    flags = {name: _list_options(name, value.get(name), faults) for name in ("needs", "veto")}
    if len(offers) > MAX_OFFERS:
        faults.append(f"offers: more than {MAX_OFFERS}")
    report = Report(offers=offers[:MAX_OFFERS], **flags, note=value.get("note", ""))
    return report, tuple(faults)


def _list_options(name: str, value: Any, faults: list[str]) -> list[str]:
    if not isinstance(value, list):
        faults.append(f"{name}: not a list")
        return []
    options = [option for option in value if isinstance(option, str)]
    if len(options) < len(value) or len(options) > MAX_OPTIONS:
        faults.append(f"{name}: more than {MAX_OPTIONS} entries, or one that is no letter")
    return options[:MAX_OPTIONS]


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

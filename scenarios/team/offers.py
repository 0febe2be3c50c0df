"""Reports against the structures: claims are checked, and what holds stands on the table under a label."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from roles.team import MAX_NOTE_WORDS, Ask, Offer, OfferReply, Report
from scenarios.company.records import Part, Plan
from scenarios.team.frontier import code_parts
from scenarios.team.playable import PlayableCase

MAX_NAME_CHARS = 80  # of a part that nobody can check


@dataclass(frozen=True, slots=True, kw_only=True)
class TabledOffer:
    """One offer whose claims hold, as ReconcileGPT may fund it.

    Example: TabledOffer(label="cto", seat="cto", option="A", choice=("spare gateway",), cost=9, worth=14)
    """

    label: str  # the seat's name, with a number where a seat may make several offers on one option
    seat: str
    option: str
    choice: tuple[str, ...]
    cost: int
    worth: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedReport:
    """A report after its claims were checked. False claims are left out of it and counted.

    Example: CheckedReport(offers=(TabledOffer(...),), needs=("A",), veto=(), note="", false_claims=())
    """

    offers: tuple[TabledOffer, ...]
    needs: tuple[str, ...]
    veto: tuple[str, ...]
    note: str
    false_claims: tuple[str, ...]  # one line each, in words; true figures are not in them


Table = Mapping[str, CheckedReport | None]  # seat -> its report; None where it wrote nothing that can be read
EMPTY_REPORT = CheckedReport(offers=(), needs=(), veto=(), note="", false_claims=())


def find_part(case: PlayableCase, seat: str, option: str, names: Sequence[str]) -> Part | None:
    """The seat's part that buys exactly these names, in any order; None where there is none such.

    A single name may be the code of an efficient part, as short prompts list them.
    """
    wanted = sorted(names)
    parts = case.parts_of(seat, option) or ()
    same_size = (part for part in parts if len(part.choice) == len(wanted))
    found = next((part for part in same_size if sorted(part.choice) == wanted), None)
    if found is None and len(names) == 1:
        coded = code_parts(case, seat).get(names[0])
        return coded if coded is not None and coded.option == option else None
    return found


def list_upgrades(case: PlayableCase, seat: str, option: str) -> list[str]:
    """Names of what the seat can buy on the option, in the order of its brief."""
    return [part.choice[0] for part in case.parts_of(seat, option) or () if len(part.choice) == 1]


def check_report(case: PlayableCase, seat: str, report: Report, faults: Sequence[str] = ()) -> CheckedReport:
    """The report with every claim checked against the seat's structures.

    An offer stands if the part exists, costs and is worth exactly what is claimed, and keeps the seat's
    limit. Of several offers on one option the first `offers_per_option` stand. `needs` stands where buying
    nothing breaks the limit and some part keeps it, `veto` where no part keeps it. Where nobody can check
    a seat's parts its claims are taken as they are. `faults` were struck out when the report was read.
    """
    offers: list[TabledOffer] = []
    false_claims = list(faults)
    most = case.public.offers_per_option
    for offer in report.offers:
        number = sum(tabled.option == offer.option for tabled in offers) + 1
        label = seat if most == 1 else f"{seat}{number}"
        problem = f"more than {most} on this option" if number > most else find_problem(case, seat, offer)
        if problem is not None:
            false_claims.append(f"offer on {offer.option[:20]}: {problem}")
        else:
            offers.append(_put_on_table(case, seat, offer, label))
    needed = [option for option in case.options if _may_claim_need(case, seat, option)]
    vetoed = [option for option in case.options if _may_claim_veto(case, seat, option)]
    false_claims += [
        f"needs {option[:20]}: the limit does not hang on a part"
        for option in report.needs
        if option not in needed
    ]
    false_claims += [
        f"veto {option[:20]}: a part keeps the limit" for option in report.veto if option not in vetoed
    ]
    return CheckedReport(
        offers=tuple(offers),
        needs=tuple(option for option in needed if option in report.needs and option not in report.veto),
        veto=tuple(option for option in vetoed if option in report.veto),
        note=cut_note(report.note),
        false_claims=tuple(false_claims),
    )


def cut_note(note: str) -> str:
    """The first MAX_NOTE_WORDS words."""
    return " ".join(note.split()[:MAX_NOTE_WORDS])


def check_reply(
    case: PlayableCase, ask: Ask, known: CheckedReport | None, reply: OfferReply
) -> TabledOffer | None:
    """The offer that the reply adds to the table; None where it makes none, or none that holds.

    It must be on the option and within the cost that were asked for, and not stand on the table already.
    """
    offer = reply.offer
    if offer is None or offer.option != ask.option or offer.cost > ask.cost_at_most:
        return None
    if find_problem(case, ask.seat, offer) is not None:
        return None
    standing = [] if known is None else [tabled for tabled in known.offers if tabled.option == offer.option]
    number = len(standing) + 1
    label = ask.seat if number == 1 and case.public.offers_per_option == 1 else f"{ask.seat}{number}"
    added = _put_on_table(case, ask.seat, offer, label)
    return None if any(tabled.choice == added.choice for tabled in standing) else added


def add_offer(report: CheckedReport | None, offer: TabledOffer) -> CheckedReport:
    """The report with one more offer; a report that could not be read begins with it."""
    known = EMPTY_REPORT if report is None else report
    return replace(known, offers=(*known.offers, offer))


def find_problem(case: PlayableCase, seat: str, offer: Offer) -> str | None:
    """The fault of an offer, in words without true figures; None where it stands."""
    if offer.option not in case.options:
        return f"options are {' '.join(case.options)}"
    if case.parts_of(seat, offer.option) is None:
        return "the cost is negative" if offer.cost < 0 else None
    part = find_part(case, seat, offer.option, offer.part)
    if part is None:
        return "no such part"
    if (offer.cost, offer.worth) != (part.cost, part.worth):
        return f"cost {offer.cost} and worth {offer.worth} are not its figures"
    return None if part.keeps_limit else "the part breaks the seat's own limit"


def is_needed(case: PlayableCase, seat: str, option: str) -> bool:
    """Return whether the option breaks the seat's limit unless it buys something that keeps it."""
    parts = case.parts_of(seat, option) or ()
    return bool(parts) and not parts[0].keeps_limit and any(part.keeps_limit for part in parts[1:])


def is_vetoed(case: PlayableCase, seat: str, option: str) -> bool:
    """Return whether the option breaks the seat's limit whatever the seat buys."""
    parts = case.parts_of(seat, option) or ()
    return bool(parts) and not any(part.keeps_limit for part in parts)


def breaks_limit(case: PlayableCase, seat: str, plan: Plan) -> bool:
    """Return whether the plan breaks the seat's hard limit; never where nobody can tell.

    Raises:
        KeyError: the plan funds something that the seat cannot buy on its option.
    """
    parts, choice = case.parts_of(seat, plan.option), plan.funded.get(seat, ())
    if parts is None:
        return False
    part = next((part for part in parts if part.choice == choice), None)
    if part is None:
        raise KeyError(f"{seat} cannot buy {', '.join(choice)} on {plan.option}")
    return not part.keeps_limit


def offers_on(table: Table, option: str) -> list[TabledOffer]:
    """All offers on one option, in the order of the seats."""
    return [
        offer
        for report in table.values()
        if report is not None
        for offer in report.offers
        if offer.option == option
    ]


def dump_report(report: CheckedReport) -> dict[str, Any]:
    """The report as JSON values."""
    return {
        "offers": [dump_offer(offer) for offer in report.offers],
        "needs": list(report.needs),
        "veto": list(report.veto),
        "note": report.note,
        "false_claims": list(report.false_claims),
    }


def dump_offer(offer: TabledOffer) -> dict[str, Any]:
    """The offer as JSON values."""
    return {
        "label": offer.label,
        "seat": offer.seat,
        "option": offer.option,
        "choice": list(offer.choice),
        "cost": offer.cost,
        "worth": offer.worth,
    }


def load_offer(values: Mapping[str, Any]) -> TabledOffer:
    """The offer of `dump_offer`."""
    return TabledOffer(**{**values, "choice": tuple(values["choice"])})


def load_report(values: Mapping[str, Any]) -> CheckedReport:
    """The report of `dump_report`."""
    return CheckedReport(
        offers=tuple(load_offer(offer) for offer in values["offers"]),
        needs=tuple(values["needs"]),
        veto=tuple(values["veto"]),
        note=values["note"],
        false_claims=tuple(values["false_claims"]),
    )


def load_table(reports: Mapping[str, Mapping[str, Any] | None]) -> dict[str, CheckedReport | None]:
    """Reports by seat, from JSON values."""
    return {seat: None if values is None else load_report(values) for seat, values in reports.items()}


def _may_claim_need(case: PlayableCase, seat: str, option: str) -> bool:
    return case.parts_of(seat, option) is None or is_needed(case, seat, option)


def _may_claim_veto(case: PlayableCase, seat: str, option: str) -> bool:
    return case.parts_of(seat, option) is None or is_vetoed(case, seat, option)


def _put_on_table(case: PlayableCase, seat: str, offer: Offer, label: str) -> TabledOffer:
    part = find_part(case, seat, offer.option, offer.part)
    names = (
        tuple(" ".join(name.split())[:MAX_NAME_CHARS] for name in offer.part) if part is None else part.choice
    )
    return TabledOffer(
        label=label, seat=seat, option=offer.option, choice=names, cost=offer.cost, worth=offer.worth
    )

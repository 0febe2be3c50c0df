"""Reports against the structures: claims are checked, and what holds stands on the table under a label."""

from collections.abc import Mapping
from dataclasses import dataclass

from roles.table import MAX_NOTE_WORDS, Offer, TableReport
from scenarios.company.records import Part
from scenarios.table.scenario import TableScenario


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
    false_claims: tuple[str, ...]  # one line each, in words


def find_part(scenario: TableScenario, seat: str, option: str, names: list[str]) -> Part | None:
    """The seat's part that buys exactly these names, in any order; None where there is none such."""
    wanted = sorted(names)
    parts = scenario.parts_of(seat, option)
    return next((part for part in parts if sorted(part.choice) == wanted), None)


def check_report(scenario: TableScenario, seat: str, report: TableReport) -> CheckedReport:
    """The report with every claim checked against the seat's structures.

    An offer stands if the part exists, costs and is worth exactly what is claimed, and keeps the seat's
    limit. Of several offers on one option the first `offers_per_option` stand. `needs` stands where buying
    nothing breaks the limit and some part keeps it, `veto` where no part keeps it.
    """
    offers: list[TabledOffer] = []
    false_claims: list[str] = []
    for offer in report.offers:
        part = _find_offered(scenario, seat, offer)
        problem = _find_problem(scenario, offer, part)
        number = sum(tabled.option == offer.option for tabled in offers) + 1
        if problem is None and number > scenario.offers_per_option:
            problem = f"more than {scenario.offers_per_option} on this option"
        if part is None or problem is not None:
            false_claims.append(f"offer on {offer.option}: {problem}")
            continue
        label = seat if scenario.offers_per_option == 1 else f"{seat}{number}"
        offers.append(
            TabledOffer(
                label=label,
                seat=seat,
                option=offer.option,
                choice=part.choice,
                cost=part.cost,
                worth=part.worth,
            )
        )
    needed = {option for option in scenario.options if is_needed(scenario, seat, option)}
    vetoed = {option for option in scenario.options if is_vetoed(scenario, seat, option)}
    false_claims += [
        f"needs {option}: the limit holds without a part" for option in report.needs if option not in needed
    ]
    false_claims += [
        f"veto {option}: a part keeps the limit" for option in report.veto if option not in vetoed
    ]
    return CheckedReport(
        offers=tuple(offers),
        needs=tuple(option for option in scenario.options if option in needed.intersection(report.needs)),
        veto=tuple(option for option in scenario.options if option in vetoed.intersection(report.veto)),
        note=" ".join(report.note.split()[:MAX_NOTE_WORDS]),
        false_claims=tuple(false_claims),
    )


def is_needed(scenario: TableScenario, seat: str, option: str) -> bool:
    """Whether the option breaks the seat's limit unless it buys something, and some part keeps the limit."""
    nothing, *bought = scenario.parts_of(seat, option)
    return not nothing.keeps_limit and any(part.keeps_limit for part in bought)


def is_vetoed(scenario: TableScenario, seat: str, option: str) -> bool:
    """Whether the option breaks the seat's limit whatever the seat buys."""
    return not any(part.keeps_limit for part in scenario.parts_of(seat, option))


def _find_offered(scenario: TableScenario, seat: str, offer: Offer) -> Part | None:
    return find_part(scenario, seat, offer.option, offer.part) if offer.option in scenario.options else None


def _find_problem(scenario: TableScenario, offer: Offer, part: Part | None) -> str | None:
    if offer.option not in scenario.options:
        return f"options are {' '.join(scenario.options)}"
    if part is None:
        return "no such part"
    if (offer.cost, offer.worth) != (part.cost, part.worth):
        return f"claimed {offer.cost} -> {offer.worth}, true {part.cost} -> {part.worth}"
    if not part.keeps_limit:
        return "the part breaks the seat's own limit"
    return None


Table = Mapping[str, CheckedReport | None]  # seat -> its report; None where it wrote nothing that can be read


def offers_on(table: Table, option: str) -> list[TabledOffer]:
    """All offers on one option, in the order of the seats."""
    return [
        offer
        for report in table.values()
        if report is not None
        for offer in report.offers
        if offer.option == option
    ]

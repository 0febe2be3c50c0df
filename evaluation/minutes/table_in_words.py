"""The table of an episode in words: options, offers seat by seat, the bill of a plan, its true worth."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evaluation.minutes.episode_in_words import join_words, say_titles
from evaluation.minutes.transcript import visible
from roles.base import Role
from scenarios.company.coordination import is_hidden_profile
from scenarios.company.optimum import best_on_option, part_of
from scenarios.company.records import Plan
from scenarios.team import CheckedReport, PlayableCase, Table, TabledOffer, TeamScenario, judge_decision
from scenarios.team.funding import list_favoured
from scenarios.team.offers import offers_on
from simulator.reading import ReadEpisode

NOTHING_BOUGHT = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferLine:
    """One offer as a line of a table.

    Example: OfferLine(option="A", part="spare gateway", cost=9, worth=14, is_needed=True, is_funded=False)
    """

    option: str
    part: str
    cost: int
    worth: int
    is_needed: bool  # the option breaks the seat's limit without a part of it
    is_funded: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatRow:
    """One seat's offers, option by option."""

    title: str
    cells: tuple[tuple[tuple[OfferLine, ...], str], ...]  # by option: offers, and what stands in the way


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionRow:
    """One option, as the meeting saw it and as it really was."""

    letter: str
    meaning: str
    base: int
    favoured_by: str
    obstacles: str
    best_plan: str  # "" without truth
    is_chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """One seat's part of the decision, beside its part of the best plan.

    Example: PlanRow(title="CTO", funded="spare gateway (cost 9, worth 14)", best="nothing")
    """

    title: str
    funded: str
    best: str


def make_offer_line(offer: TabledOffer, report: CheckedReport, plan: Plan | None) -> OfferLine:
    """Return the offer with what became of it."""
    is_chosen = plan is not None and plan.option == offer.option
    return OfferLine(
        option=offer.option,
        part=visible(", ".join(offer.choice)),
        cost=offer.cost,
        worth=offer.worth,
        is_needed=offer.option in report.needs,
        is_funded=is_chosen and plan is not None and plan.funded.get(offer.seat) == offer.choice,
    )


def list_seat_rows(
    case: PlayableCase, table: Table, plan: Plan | None, roles: Mapping[str, Role]
) -> list[SeatRow]:
    """Return the whole table, a row per seat and a cell per option."""
    return [
        SeatRow(
            title=say_titles([seat], roles),
            cells=tuple(_make_cell(option, table.get(seat), plan) for option in case.options),
        )
        for seat in case.seats
    ]


def _make_cell(
    option: str, report: CheckedReport | None, plan: Plan | None
) -> tuple[tuple[OfferLine, ...], str]:
    if report is None:
        return (), "no report"
    offers = tuple(make_offer_line(o, report, plan) for o in report.offers if o.option == option)
    if option in report.veto:
        return offers, "vetoes it"
    return offers, "needs a part, offers none" if option in report.needs and not offers else ""


def list_options(
    case: PlayableCase, table: Table, option: str | None, roles: Mapping[str, Role]
) -> list[OptionRow]:
    """Return every option with who favours it, what stands in its way, and its true best plan."""
    heard = [seat for seat in case.seats if table.get(seat) is not None]
    favoured = {seat: list_favoured(case.public, table, seat) for seat in heard}
    rows = []
    for letter, facts in case.public.options.items():
        vetoers = [seat for seat in heard if letter in _report(table, seat).veto]
        lacking = [
            seat
            for seat in heard
            if letter in _report(table, seat).needs
            and all(offer.option != letter for offer in _report(table, seat).offers)
        ]
        obstacles = [f"vetoed by {say_titles(vetoers, roles)}"] if vetoers else []
        obstacles += [f"{say_titles(lacking, roles)} would need a part"] if lacking else []
        rows.append(
            OptionRow(
                letter=letter,
                meaning=visible(facts.name),
                base=facts.base,
                favoured_by=say_titles([seat for seat in heard if letter in favoured[seat]], roles),
                obstacles="; ".join(obstacles),
                best_plan=_say_best(case, letter) if isinstance(case, TeamScenario) else "",
                is_chosen=letter == option,
            )
        )
    return rows


def _report(table: Table, seat: str) -> CheckedReport:
    report = table[seat]
    assert report is not None
    return report


def _say_best(case: TeamScenario, option: str) -> str:
    found = best_on_option(case.case, option, case.case.budget)
    if found is None:
        return "cannot be run within the budget"
    worth, cost, _ = found
    is_best = case.optimum is not None and case.optimum.plan.option == option
    return f"{worth} k$ at cost {cost}{', the best' if is_best else ''}"


def list_bill(
    case: PlayableCase, table: Table, plan: Plan, roles: Mapping[str, Role]
) -> list[tuple[str, str]]:
    """(what, k$) line by line: the option, every funded part, the sum; by the reports."""
    option = case.public.options[plan.option]
    offers = {offer.seat: offer for offer in offers_on(table, plan.option) if _is_funded(offer, plan)}
    lines = [(f"option {plan.option} before any spending", f"worth {option.base}")]
    for seat, offer in offers.items():
        what = f"{say_titles([seat], roles)}: {visible(', '.join(offer.choice))}"
        lines.append((what, f"cost {offer.cost}, worth {offer.worth}"))
    cost = sum(offer.cost for offer in offers.values())
    worth = option.base + sum(offer.worth for offer in offers.values())
    return [*lines, ("together", f"cost {cost} of {case.public.budget}, worth {worth}")]


def _is_funded(offer: TabledOffer, plan: Plan) -> bool:
    return plan.funded.get(offer.seat) == offer.choice


def compare_with_best(case: TeamScenario, read: ReadEpisode, roles: Mapping[str, Role]) -> list[PlanRow]:
    """Return the funded plan beside the best one, seat by seat."""
    best = case.optimum.plan if case.optimum else None
    return [
        PlanRow(
            title=say_titles([seat], roles),
            funded=_say_part(case, seat, read.plan),
            best=_say_part(case, seat, best),
        )
        for seat in case.seats
    ]


def _say_part(case: TeamScenario, seat: str, plan: Plan | None) -> str:
    if plan is None or not plan.funded.get(seat):
        return NOTHING_BOUGHT
    part = part_of(case.case, seat, plan.option, plan.funded[seat])
    return visible(f"{', '.join(part.choice)} (cost {part.cost}, worth {part.worth})")


def say_worth(case: TeamScenario, read: ReadEpisode, roles: Mapping[str, Role]) -> list[str]:
    """Say what the decision is worth by the structures, sentence by sentence."""
    judged = judge_decision(case, read.table, read.decision)
    if case.optimum is None:
        verdict = "Handing the case over was right" if judged.value else "It should have gone to a person"
        return [f"No option can be run within the budget. {verdict}: V = {judged.value:.0f}."]
    blind, best, right = case.truth["blind"], case.optimum.worth, case.optimum.plan.option
    scale = (
        f"A plan made blind, an equal share for every seat, is worth {float(blind):.1f} k$ on average"
        f" (V = 0); the best possible one, option {right} at cost {case.optimum.cost}, {best} k$ (V = 1)."
    )
    if is_hidden_profile(case.case):
        scale += (
            f" Neither the worth before spending nor what any one seat knows favours option {right}: it takes"
            " the offers of several seats to see that it is the best (a hidden profile)."
        )
    if judged.worth is None:
        what = "The case was handed over needlessly" if read.decision else "There is no decision"
        return [f"{what}: V = 0.", scale]
    faults = (
        [f"breaks the hard limit of {say_titles(judged.broken_limits, roles)}"]
        if judged.broken_limits
        else []
    )
    faults += [f"is {judged.over_budget} k$ over the budget"] if judged.over_budget else []
    if faults:
        return [f"The plan {join_words(faults)}: V = 0.", scale]
    room = f"({judged.worth} - {float(blind):.1f}) / ({best} - {float(blind):.1f})"
    clipped = ", no less than 0" if judged.worth < blind else ""
    return [f"The plan is worth {judged.worth} k$: V = {room} = {judged.value:.2f}{clipped}.", scale]


def list_struck(report: CheckedReport | None) -> Sequence[str]:
    """Return the claims of a report that were struck out, as text to show."""
    return [visible(claim) for claim in report.false_claims] if report else []

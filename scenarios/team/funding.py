"""Arithmetic over reports alone: what a plan costs, what it is worth, and which plan is best by some rule.

Everything here can be done by a reader of the reports. No structure and no truth is used.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Literal, NamedTuple, get_args

from scenarios.team.offers import Table, TabledOffer, offers_on
from scenarios.team.playable import PublicCase

FundingWay = Literal["exact", "return", "worth"]
FUNDING_WAYS: tuple[FundingWay, ...] = get_args(FundingWay)


class Funding(NamedTuple):
    """One option with the offers that are funded on it, by the reports.

    Example: Funding(option="B", offers=(...,), cost=40, worth=100)
    """

    option: str
    offers: tuple[TabledOffer, ...]  # at most one per seat, in the order of the seats
    cost: int
    worth: int  # base and the worth of the offers


def find_obstacle(public: PublicCase, table: Table, option: str, offers: Sequence[TabledOffer]) -> str | None:
    """The first reason, in words, why the plan cannot be run by the reports; None where it can."""
    vetoers = [seat for seat, report in table.items() if report is not None and option in report.veto]
    if vetoers:
        return f"{option} is vetoed by {' '.join(vetoers)}"
    funded = {offer.seat for offer in offers}
    lacking = [
        seat
        for seat, report in table.items()
        if report is not None and option in report.needs and seat not in funded
    ]
    if lacking:
        return f"{option} needs {' '.join(lacking)}"
    cost = sum(offer.cost for offer in offers)
    if cost > public.budget:
        return f"cost {cost} is {cost - public.budget} over the budget"
    return None


def make_funding(public: PublicCase, option: str, offers: Sequence[TabledOffer]) -> Funding:
    """The option with these offers, priced and valued."""
    order = {seat: number for number, seat in enumerate(public.seats)}
    chosen = tuple(sorted(offers, key=lambda offer: order[offer.seat]))
    return Funding(
        option=option,
        offers=chosen,
        cost=sum(offer.cost for offer in chosen),
        worth=public.base[option] + sum(offer.worth for offer in chosen),
    )


def list_fundings(public: PublicCase, table: Table, option: str) -> list[Funding]:
    """Every plan on the option that can be run by the reports: at most one offer per seat."""
    if any(report is not None and option in report.veto for report in table.values()):
        return []
    needed = {seat for seat, report in table.items() if report is not None and option in report.needs}
    if not needed <= set(public.seats):
        return []
    offered = offers_on(table, option)
    none: tuple[TabledOffer, ...] = ()
    plans = [(none, 0, public.options[option].base)]  # of the seats so far
    for seat in public.seats:
        added = [] if seat in needed else [(none, 0, 0)]
        added += [((offer,), offer.cost, offer.worth) for offer in offered if offer.seat == seat]
        plans = [
            (offers + own, spent + cost, gained + worth)
            for offers, spent, gained in plans
            for own, cost, worth in added
            if spent + cost <= public.budget
        ]
    return [Funding(option, *plan) for plan in plans]


def best_funding(public: PublicCase, table: Table) -> Funding | None:
    """The plan of the largest worth by the reports: then the cheaper one, the earlier option, fewer offers.

    None where no option can be run: the case must be escalated.
    """
    return choose_best(list_all_fundings(public, table))


def list_all_fundings(public: PublicCase, table: Table) -> list[Funding]:
    """Every plan on every option that can be run by the reports."""
    return [plan for option in public.base for plan in list_fundings(public, table, option)]


def choose_best(plans: Sequence[Funding]) -> Funding | None:
    """The plan of the largest worth: then the cheaper one, fewer offers, the earlier in `plans`."""
    return max(plans, key=lambda plan: (plan.worth, -plan.cost, -len(plan.offers)), default=None)


def fund_in_order(public: PublicCase, table: Table, option: str, *, by_return: bool) -> Funding | None:
    """The option with offers funded one after the other while money lasts; None where it cannot be run.

    Offers that the option needs come first. The rest goes by worth per k$ (`by_return`) or by worth, and by
    the order of the seats where these are equal.
    """
    taken: list[TabledOffer] = []
    spent = 0

    def rank(offer: TabledOffer) -> tuple[bool, Fraction]:
        report = table[offer.seat]
        needed = report is not None and option in report.needs
        value = Fraction(offer.worth, max(1, offer.cost)) if by_return else Fraction(offer.worth)
        return needed, value

    for offer in sorted(offers_on(table, option), key=rank, reverse=True):
        is_open = all(other.seat != offer.seat for other in taken) and (offer.worth > 0 or rank(offer)[0])
        if is_open and spent + offer.cost <= public.budget:
            taken.append(offer)
            spent += offer.cost
    return None if find_obstacle(public, table, option, taken) else make_funding(public, option, taken)


def rank_options(public: PublicCase, table: Table, habit: FundingWay) -> list[tuple[str, Funding | None]]:
    """Every option as the habit funds it, by falling worth; None for one that cannot be run, last.

    `exact` takes the best of all combinations, `return` and `worth` offer by offer in that order. Of equal
    options the cheaper comes first, then the earlier.
    """
    plans = [(option, _fund_option(public, table, option, habit)) for option in public.base]
    return sorted(
        plans, key=lambda item: (1, 0, 0) if (plan := item[1]) is None else (0, -plan.worth, plan.cost)
    )


def _fund_option(public: PublicCase, table: Table, option: str, habit: FundingWay) -> Funding | None:
    if habit == "exact":
        return choose_best(list_fundings(public, table, option))
    return fund_in_order(public, table, option, by_return=habit == "return")


def best_in_order(public: PublicCase, table: Table, *, by_return: bool) -> Funding | None:
    """The option that is worth most when its offers are funded in order; None where none can be run."""
    ranked = rank_options(public, table, "return" if by_return else "worth")
    return ranked[0][1] if ranked else None  # a reviewer may have ruled every option out


def list_favoured(public: PublicCase, table: Table, seat: str) -> list[str]:
    """The options on which base value plus the worth of the seat's best offer is greatest."""
    totals = public.base
    for option, base in public.base.items():
        own = [offer.worth for offer in offers_on(table, option) if offer.seat == seat]
        totals[option] = base + max(own, default=0)
    return [option for option, total in totals.items() if total == max(totals.values())]


def list_conflicts(public: PublicCase, table: Table, option: str) -> list[str]:
    """The seats that favour only other options than this one."""
    return [seat for seat in public.seats if option not in list_favoured(public, table, seat)]

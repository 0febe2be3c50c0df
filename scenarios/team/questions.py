"""Choice of a question that pays, from what ReconcileGPT can know by the reports before it asks.

A seat's efficient parts return less per k$ the dearer they are. So a part that costs a share of an offer is
worth about that share of it or more, and money beyond an offer returns less than the offer did.
"""

from collections.abc import Collection, Sequence
from fractions import Fraction

from roles.team import Ask
from scenarios.team.funding import best_funding, list_fundings
from scenarios.team.offers import EMPTY_REPORT, CheckedReport, Table, TabledOffer, offers_on
from scenarios.team.playable import PublicCase

LEAST_COST = 3  # k$: hardly a part costs less
SMALLER_SHARE = Fraction(9, 10)  # of an offer's return per k$, that a smaller part is reckoned to have
FURTHER_SHARE = Fraction(2, 5)  # of an offer's return per k$, that money beyond it is reckoned to have
LEAST_GAIN = 3  # k$ that the answer must be reckoned to add: less is not worth a question


def choose_question(public: PublicCase, table: Table, asked: Collection[Ask] = ()) -> Ask | None:
    """The question whose answer is reckoned to add most to the best plan; None where none adds enough.

    Nothing is asked twice of a seat about one option. Where no plan can be run, whatever makes one is asked.
    """
    best = best_funding(public, table)
    found: list[tuple[Fraction, Ask]] = []
    for option in public.options:
        for seat, report in table.items():
            if report is None or option in report.veto:
                continue
            if any((ask.seat, ask.option) == (seat, option) for ask in asked):
                continue
            found += _reckon_plans(public, table, option, seat)
    if not found:
        return None
    worth, ask = max(found, key=lambda one: (one[0], -one[1].cost_at_most))
    return ask if best is None or worth >= best.worth + LEAST_GAIN else None


def _reckon_plans(public: PublicCase, table: Table, option: str, seat: str) -> list[tuple[Fraction, Ask]]:
    """Estimated worth of the best plans with another part of the seat, by the question for it."""
    own = [offer for offer in offers_on(table, option) if offer.seat == seat]
    rest = _leave_out(table, seat)
    found = []
    for plan in list_fundings(public, rest, option):
        amount = public.budget - plan.cost
        if amount >= LEAST_COST:
            worth = plan.worth + _reckon_part(own, amount)
            found.append((worth, Ask(seat=seat, option=option, cost_at_most=amount)))
    return found


def _leave_out(table: Table, seat: str) -> dict[str, CheckedReport | None]:
    """The table as if the seat had offered and claimed nothing."""
    return {other: EMPTY_REPORT if other == seat else report for other, report in table.items()}


def _reckon_part(offers: Sequence[TabledOffer], amount: int) -> Fraction:
    """Estimated worth of the seat's best part for the amount, by its offers on the option."""
    below = max((offer for offer in offers if offer.cost <= amount), key=lambda one: one.worth, default=None)
    above = min((offer for offer in offers if offer.cost > amount), key=lambda one: one.cost, default=None)
    cost, worth = (below.cost, below.worth) if below is not None else (0, 0)
    if above is not None:
        return worth + SMALLER_SHARE * Fraction(above.worth - worth, above.cost - cost) * (amount - cost)
    return worth + FURTHER_SHARE * Fraction(worth, max(1, cost)) * min(amount - cost, cost)

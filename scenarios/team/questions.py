"""Choice of a question that pays, from what ReconcileGPT can know by the reports before it asks.

Money that the sheet's best plan leaves over is worth nothing. So a seat is asked what it has for that: the
one of the largest offer that is not funded, or else the funded one of the largest worth, for a larger part.
"""

from collections.abc import Collection

from roles.team import Ask
from scenarios.team.funding import Funding
from scenarios.team.offers import Table, TabledOffer, offers_on
from scenarios.team.playable import PublicCase
from scenarios.team.texts.comparing import compare_options

LEAST_LEFT = 3  # k$: hardly a part costs less


def choose_question(public: PublicCase, table: Table, asked: Collection[Ask] = ()) -> Ask | None:
    """The question that pays; None where too little money is left to ask about."""
    return explain_question(public, table, asked)[1]


def explain_question(
    public: PublicCase, table: Table, asked: Collection[Ask] = ()
) -> tuple[list[str], Ask | None]:
    """Return the lines that lead from the options as compared to the question, and the question.

    Nothing is asked twice of a seat about one option. Where no plan can be run, a seat is asked for a part
    that makes an option possible.
    """
    leader = compare_options(public, table)[1]
    taken = {(ask.seat, ask.option) for ask in asked}
    if leader is None:
        return _ask_for_what_is_needed(public, table, taken)
    left = public.budget - leader.cost
    lines = [f"{leader.option}: {public.budget} - {leader.cost} = {left} left"]
    if left < LEAST_LEFT:
        return lines, None
    largest = [
        offer
        for offer in _list_largest(table, leader.option)
        if (offer.seat, leader.option) not in taken and offer.worth > 0
    ]
    funded = {offer.seat for offer in leader.offers}
    others = [offer for offer in largest if offer.seat not in funded]
    candidates = others or largest
    if not candidates:
        return lines, None
    chosen = max(candidates, key=lambda offer: offer.worth)
    said = ", ".join(f"{offer.seat} {offer.worth}" for offer in candidates)
    amount = most_cost(public, leader, chosen.seat)
    if others:
        lines.append(f"not funded: {said}, most {chosen.seat}")
    else:
        lines.append(f"all funded: {said}, most {chosen.seat}, {amount - left} + {left} = {amount}")
    return lines, Ask(seat=chosen.seat, option=leader.option, cost_at_most=amount)


def most_cost(public: PublicCase, plan: Funding, seat: str) -> int:
    """The most that another offer of the seat may cost: what the plan leaves and what it pays the seat."""
    return public.budget - plan.cost + sum(offer.cost for offer in plan.offers if offer.seat == seat)


def _list_largest(table: Table, option: str) -> list[TabledOffer]:
    """Every seat's offer of the largest worth on the option, in the order of the seats."""
    largest: dict[str, TabledOffer] = {}
    for offer in offers_on(table, option):
        if offer.seat not in largest or offer.worth > largest[offer.seat].worth:
            largest[offer.seat] = offer
    return list(largest.values())


def _ask_for_what_is_needed(
    public: PublicCase, table: Table, taken: Collection[tuple[str, str]]
) -> tuple[list[str], Ask | None]:
    for option in public.options:
        reports = {seat: report for seat, report in table.items() if report is not None}
        if any(option in report.veto for report in reports.values()):
            continue
        needed = [seat for seat, report in reports.items() if option in report.needs]
        cheapest = {
            seat: min((offer.cost for offer in offers_on(table, option) if offer.seat == seat), default=None)
            for seat in needed
        }
        for seat in needed:
            costs = [cheapest[other] for other in needed if other != seat]
            if (seat, option) in taken or None in costs:
                continue
            spent = sum(cost for cost in costs if cost is not None)
            own, amount = cheapest[seat], public.budget - spent
            if amount >= LEAST_LEFT and (own is None or own > amount):
                line = f"{option} needs {seat}: {public.budget} - {spent} = {amount} left"
                return [line], Ask(seat=seat, option=option, cost_at_most=amount)
    return [], None

"""Worth of plans by a second method: the reports over all sets of offers, by structures measured again.

Shares no code with the funding and the optimum that the verifier uses.
"""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from evaluation.audit.families.team_seats import PricedPart, price_again
from scenarios.team.offers import Table, TabledOffer
from scenarios.team.playable import PublicCase
from scenarios.team.scenario import TeamScenario


def worth_by_reports(public: PublicCase, table: Table, option: str, fund: Sequence[str]) -> int | None:
    """k$ of the option with these labels funded; None where the reports say that it cannot be run."""
    if option not in public.options:
        return None
    known: dict[str, TabledOffer] = {}
    for report in table.values():
        known |= {offer.label: offer for offer in (report.offers if report else ()) if offer.option == option}
    if not set(fund) <= set(known) or len({known[label].seat for label in fund}) < len(fund):
        return None
    paid = {known[label].seat for label in fund}
    for seat, report in table.items():
        if report and (option in report.veto or (option in report.needs and seat not in paid)):
            return None
    if sum(known[label].cost for label in fund) > public.budget:
        return None
    return public.options[option].base + sum(known[label].worth for label in fund)


def list_worths(public: PublicCase, table: Table) -> list[int]:
    """k$ of every plan that can be run by the reports."""
    worths = []
    for option in public.options:
        labels = [
            offer.label
            for report in table.values()
            for offer in (report.offers if report else ())
            if offer.option == option
        ]
        for bits in range(2 ** len(labels)):
            fund = [label for place, label in enumerate(labels) if bits >> place & 1]
            worth = worth_by_reports(public, table, option, fund)
            worths += [] if worth is None else [worth]
    return worths


def best_by_reports(public: PublicCase, table: Table) -> int | None:
    """k$ of the best of these; None where nothing can be run."""
    return max(list_worths(public, table), default=None)


def best_by_structures(case: TeamScenario) -> int | None:
    """k$ of the optimum: money spent so far -> most worth, seat by seat; None where nothing can be run."""
    best: int | None = None
    for option, facts in case.public.options.items():
        reached = {0: facts.base}
        for seat in case.seats:
            offered = [
                (part.cost, part.worth) for part in price_again(case, seat, option) if part.keeps_limit
            ]
            reached = _extend(reached, offered, case.public.budget)
        if reached:
            best = max(reached.values()) if best is None else max(best, *reached.values())
    return best


def _extend(reached: Mapping[int, int], offered: Iterable[tuple[int, int]], budget: int) -> dict[int, int]:
    extended: dict[int, int] = {}
    for cost, worth in offered:
        for spent, gained in reached.items():
            if spent + cost <= budget:
                extended[spent + cost] = max(extended.get(spent + cost, gained + worth), gained + worth)
    return extended


def blind_by_structures(case: TeamScenario) -> Fraction:
    """k$ of a blind plan: per option each seat buys its best part within an equal share of the budget.

    A seat for which all that keeps its limit costs more buys the cheapest of it. Options that cannot be run
    so count as the least of the others; where none can, the blind plan is the poorest that can be run.
    """
    share = case.public.budget // len(case.seats)
    worths: list[int | None] = []
    for option, facts in case.public.options.items():
        bought = [_buy(price_again(case, seat, option), share) for seat in case.seats]
        parts = [part for part in bought if part is not None]
        is_open = len(parts) == len(bought) and sum(part.cost for part in parts) <= case.public.budget
        worths.append(facts.base + sum(part.worth for part in parts) if is_open else None)
    known = [worth for worth in worths if worth is not None]
    if known:
        return Fraction(sum(min(known) if worth is None else worth for worth in worths), len(worths))
    return Fraction(min(_cheapest_worths(case)))


def _buy(parts: Sequence[PricedPart], amount: int) -> PricedPart | None:
    keeping = [part for part in parts if part.keeps_limit]
    within = [part for part in keeping if part.cost <= amount]
    if within:
        return max(within, key=lambda part: (part.worth, -part.cost))
    return min(keeping, key=lambda part: (part.cost, -part.worth), default=None)


def _cheapest_worths(case: TeamScenario) -> list[int]:
    """k$ of every option that can be run, with the cheapest parts that keep the limits."""
    worths = []
    for option, facts in case.public.options.items():
        keeping = [
            [part for part in price_again(case, seat, option) if part.keeps_limit] for seat in case.seats
        ]
        if all(keeping):
            chosen = [min(parts, key=lambda part: (part.cost, part.worth)) for parts in keeping]
            if sum(part.cost for part in chosen) <= case.public.budget:
                worths.append(facts.base + sum(part.worth for part in chosen))
    return worths


def value_by_structures(case: TeamScenario, option: str, choices: Mapping[str, Sequence[str]]) -> float:
    """V of an option with these choices by seat, measured again; 0 where nothing can be run."""
    best = best_by_structures(case)
    if best is None:
        return 0.0
    cost, worth = 0, case.public.options[option].base
    for seat in case.seats:
        wanted = sorted(choices.get(seat, ()))
        part = next(part for part in price_again(case, seat, option) if sorted(part.choice) == wanted)
        if not part.keeps_limit:
            return 0.0
        cost, worth = cost + part.cost, worth + part.worth
    if cost > case.public.budget:
        return 0.0
    blind = blind_by_structures(case)
    return max(0.0, min(1.0, float((worth - blind) / (best - blind))))

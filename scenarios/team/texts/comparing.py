"""Words in which ReconcileGPT compares plans by the reports: option with option, offer with offer."""

from scenarios.company.comparison import beats, compare_in_words
from scenarios.team.funding import Funding, choose_best, fund_in_order, make_funding
from scenarios.team.offers import Table, offers_on
from scenarios.team.playable import PublicCase


def name_plan(plan: Funding) -> str:
    """The plan in a few words.

    Example: "B cto risk 71"
    """
    return " ".join((plan.option, *(offer.label for offer in plan.offers), str(plan.worth)))


def add_up(public: PublicCase, plan: Funding) -> str:
    """The sums behind a plan's worth and cost.

    Example: "B cto risk: worth 26 + 21 + 20 = 67, cost 8 + 13 = 21"
    """
    base = public.base[plan.option]
    worths = " + ".join(str(term) for term in (base, *(offer.worth for offer in plan.offers)))
    costs = " + ".join(str(offer.cost) for offer in plan.offers)
    if len(plan.offers) == 0:
        return f"{plan.option} alone: worth {base}"
    cost = costs if len(plan.offers) == 1 else f"{costs} = {plan.cost}"
    labels = " ".join(offer.label for offer in plan.offers)
    return f"{plan.option} {labels}: worth {worths} = {plan.worth}, cost {cost}"


def compare_options(public: PublicCase, table: Table) -> tuple[list[str], Funding | None]:
    """Return a line per option that compares the sheet's plan with the best so far, and the best of all."""
    lines: list[str] = []
    best: Funding | None = None
    for option in public.options:
        plan = fund_in_order(public, table, option, by_return=True)
        if plan is None:
            lines.append(f"{option}: cannot be run")
            continue
        said = f"worth {plan.worth}" if best is None else compare_in_words(plan, best)
        if beats(plan, best):
            best = plan
            said += f", best {name_plan(plan)}"
        lines.append(f"{option}: {said}")
    return lines, best


def list_exchanges(public: PublicCase, table: Table, plan: Funding) -> list[tuple[str, Funding | None]]:
    """Compare every offer of the plan's option with each funded one in whose place it may stand.

    Each comparison is in words, with the plan after the exchange where that is worth more and can be run.
    """
    budget, exchanges = public.budget, []
    for offer in offers_on(table, plan.option):
        for funded in plan.offers:
            kept = [one for one in plan.offers if one is not funded]
            report = table[funded.seat]
            is_needed = report is not None and plan.option in report.needs
            if (
                offer in plan.offers
                or any(one.seat == offer.seat for one in kept)
                or (is_needed and offer.seat != funded.seat)
            ):
                continue
            said = f"{offer.label} for {funded.label}: worth {offer.worth} to {funded.worth}: "
            after: Funding | None = None
            if offer.worth <= funded.worth:
                said += "no more"
            else:
                after = make_funding(public, plan.option, [*kept, offer])
                costs = f"{plan.cost} - {funded.cost} + {offer.cost} = {after.cost}"
                said += f"more, cost {costs} of {budget}: "
                if after.cost > budget:
                    said, after = f"{said}over", None
                else:
                    said += f"fits, worth {plan.worth} - {funded.worth} + {offer.worth} = {after.worth}"
            exchanges.append((said, after))
    return exchanges


def explain_best(public: PublicCase, table: Table, best: Funding | None) -> tuple[list[str], Funding | None]:
    """Return the lines that lead from the sheet to the best plan, and the sheet's best plan.

    Where the best plan takes more than one exchange the last line gives its sums.
    """
    lines, leader = compare_options(public, table)
    exchanges = list_exchanges(public, table, leader) if leader is not None else []
    lines += [said for said, _ in exchanges]
    found = choose_best([plan for plan in (leader, *(after for _, after in exchanges)) if plan is not None])
    if best is not None and beats(best, found):
        lines.append(f"better {add_up(public, best)}")
    return lines, leader

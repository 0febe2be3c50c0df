"""The best plan of a company case, exactly, by two methods; and the worth of any plan by the structures.

Per option a multi-choice knapsack: at most one part per seat, one budget, every seat's limit kept. The first
method joins the seats' efficient parts one after the other (`knapsack.py`), the second is dynamic programming
over money from all parts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from scenarios.company.knapsack import combine, list_efficient, take_within
from scenarios.company.records import CompanyCase, Part, Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """The plan of the largest worth: of equal ones the cheapest, then the earliest option.

    Example: Optimum(plan=Plan(option="B", funded={...}), cost=40, worth=100)
    """

    plan: Plan
    cost: int  # k$
    worth: int  # k$: the option's base and the worth of the funded parts


def part_of(case: CompanyCase, seat: str, option: str, choice: tuple[str, ...]) -> Part:
    """The part that buys exactly this.

    Raises:
        KeyError: the seat has no such part on the option.
    """
    for part in case.parts[seat][option]:
        if part.choice == choice:
            return part
    raise KeyError(f"{seat} cannot buy {', '.join(choice)} on {option}")


def plan_parts(case: CompanyCase, plan: Plan) -> list[Part]:
    """One part per seat, buying nothing where the plan names none."""
    return [part_of(case, seat, plan.option, plan.funded.get(seat, ())) for seat in case.parts]


def plan_worth(case: CompanyCase, plan: Plan) -> int:
    """k$: the option's base and the worth of the funded parts, whether or not the plan can be run."""
    return case.options[plan.option].base + sum(part.worth for part in plan_parts(case, plan))


def best_on_option(case: CompanyCase, option: str, budget: int) -> tuple[int, int, Plan] | None:
    """Worth, cost and plan of the best that can be run on one option; None where nothing can."""
    combinations = combine([list_efficient(by_option[option]) for by_option in case.parts.values()], budget)
    if not combinations:
        return None
    best = combinations[-1]
    funded = {part.seat: part.choice for part in best.list_parts()}
    return case.options[option].base + best.worth, best.cost, Plan(option=option, funded=funded)


def find_optimum(case: CompanyCase) -> Optimum | None:
    """The best plan of the case; None where no option can be run within the budget."""
    found = [
        plan for option in case.options if (plan := best_on_option(case, option, case.budget)) is not None
    ]
    if not found:
        return None
    worth, cost, best = min(found, key=lambda item: (-item[0], item[1]))  # of equal ones the earlier option
    return Optimum(plan=best, cost=cost, worth=worth)


def recheck_optimum(case: CompanyCase) -> int | None:
    """The optimum's worth by dynamic programming over money; None where nothing can be run."""
    found = []
    for option, facts in case.options.items():
        own = [by_option[option] for by_option in case.parts.values()]
        offered = [[(part.cost, part.worth) for part in parts if part.keeps_limit] for parts in own]
        found.append(best_over_money(facts.base, offered, case.budget))
    return max((best[0] for best in found if best is not None), default=None)


def best_over_money(
    base: int, offered: Iterable[Sequence[tuple[int, int]]], budget: int
) -> tuple[int, int] | None:
    """(worth, cost) of the best choice of one (cost, worth) of each seat, the cheaper of equals.

    By the most worth at every amount of money that can be spent; None where no choice is within the budget.
    """
    reached = {0: base}
    for own in offered:
        grown: dict[int, int] = {}
        for spent, gained in reached.items():
            for cost, worth in own:
                if spent + cost <= budget:
                    grown[spent + cost] = max(grown.get(spent + cost, gained + worth), gained + worth)
        reached = grown
    return max(
        ((worth, cost) for cost, worth in reached.items()),
        key=lambda found: (found[0], -found[1]),
        default=None,
    )


def least_cost(case: CompanyCase) -> int | None:
    """k$ of the cheapest plan that keeps all limits on some option; None where a limit cannot be kept."""
    costs = []
    for option in case.options:
        cheapest = [
            min((part.cost for part in by_option[option] if part.keeps_limit), default=None)
            for by_option in case.parts.values()
        ]
        if all(cost is not None for cost in cheapest):
            costs.append(sum(cost for cost in cheapest if cost is not None))
    return min(costs, default=None)


def blind_worth(case: CompanyCase) -> Fraction:
    """k$ that plans are worth on average when nobody talks: the zero of V.

    Every option is as likely as any other. On it each seat buys, unasked, the best part that keeps its limit
    within its own equal share of the budget, or the cheapest that keeps the limit where all cost more. An
    option that cannot be run so within the budget is worth as little as the least of the others.

    Raises:
        ValueError: no option can be run within the budget: such a case has no blind plan.
    """
    worths: list[int] = []
    for option, facts in case.options.items():
        share = case.budget // len(case.parts)
        chosen = [_best_within(by_option[option], share) for by_option in case.parts.values()]
        bought = [part for part in chosen if part is not None]
        if len(bought) == len(chosen) and sum(part.cost for part in bought) <= case.budget:
            worths.append(facts.base + sum(part.worth for part in bought))
    if worths:
        worths += [min(worths)] * (len(case.options) - len(worths))
        return Fraction(sum(worths), len(worths))
    plans = [best_on_option(case, option, case.budget) for option in case.options]
    runnable = [plan for plan in plans if plan is not None]
    if not runnable:
        raise ValueError("no option can be run within the budget")
    return Fraction(min(_least_worth(case, plan.option) for _, _, plan in runnable))


def _best_within(parts: tuple[Part, ...], amount: int) -> Part | None:
    efficient = list_efficient(parts)
    return take_within(efficient, amount) or next(iter(efficient), None)


def _least_worth(case: CompanyCase, option: str) -> int:
    """k$ of the option with the cheapest parts that keep all limits."""
    cheapest = [
        min(
            (part for part in by_option[option] if part.keeps_limit), key=lambda part: (part.cost, part.worth)
        )
        for by_option in case.parts.values()
    ]
    return case.options[option].base + sum(part.worth for part in cheapest)


def scale_worth(worth: int, blind: Fraction, best: int) -> float:
    """A plan's worth as a share of the room between a blind plan and the best one, in [0, 1].

    Without room, as after a shock that leaves one part to buy, the best is worth 1 and anything less 0.
    """
    if best <= blind:
        return float(worth >= best)
    return min(1.0, max(0.0, float((worth - blind) / (best - blind))))

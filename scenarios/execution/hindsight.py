"""The best that a table could have reached in a world that it knew from the beginning."""

from dataclasses import dataclass, replace
from fractions import Fraction

from scenarios.company.optimum import best_on_option, blind_worth, scale_worth
from scenarios.company.records import CompanyCase, Plan
from scenarios.execution.shocks import strike
from scenarios.execution.situation import Situation
from scenarios.execution.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Hindsight:
    """The best plan of a world, funded from budget and reserve, and the zero of what a plan is worth there.

    Example: look_back(world).best >= look_back(world).blind
    """

    best: int | None  # k$; None where no option could be run
    plan: Plan | None
    blind: Fraction | None  # k$ of a plan that nobody talked about; None where no option could be run


def strike_all(world: World) -> CompanyCase:
    """The case as it is once every option has met its shocks."""
    case = world.actual
    for shocks in world.shocks.values():
        for shock in shocks:
            case = strike(case, shock)
    return case


def look_back(world: World) -> Hindsight:
    """The best that was possible in the world with all money spent well at once."""
    case, found = strike_all(world), []
    for option, shocks in world.shocks.items():
        cut = sum(shock.amount for shock in shocks if shock.kind == "cut")
        best = best_on_option(case, option, case.budget + max(0, world.reserve - cut))
        if best is not None:
            found.append(best)
    if not found:
        return Hindsight(best=None, plan=None, blind=None)
    worth, _, plan = max(found, key=lambda item: (item[0], -item[1]))
    for budget in (case.budget, case.budget + world.reserve):
        try:
            return Hindsight(best=worth, plan=plan, blind=blind_worth(replace(case, budget=budget)))
        except ValueError:
            continue
    return Hindsight(best=worth, plan=plan, blind=Fraction(0))


def value_situation(world: World, situation: Situation) -> float:
    """V in [0, 1] of what is in place: 0 with nothing carried out or a broken limit, 1 at the best possible.

    Money that was spent on options since left, or on parts that a shock made worthless, is not paid back.
    """
    option = situation.option
    if not option or not all(own[option][0].keeps_limit for own in situation.known.parts.values()):
        return 0.0
    back = look_back(world)
    if back.best is None or back.blind is None:
        return 0.0
    return scale_worth(situation.known.options[option].base, back.blind, back.best)

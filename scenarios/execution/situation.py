"""The company's situation after plans were carried out: money spent is spent, what was bought stays.

The situation is a company case again, with what is left of the money as its budget: the same game, offers and
oracles serve the re-plan. What was bought is in effect, its actual effect is known.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from scenarios.company.bought import list_bought
from scenarios.company.domains import DOMAINS
from scenarios.company.domains.architecture import WHOLE
from scenarios.company.optimum import best_on_option, blind_worth, plan_parts, plan_worth, scale_worth
from scenarios.company.records import CompanyCase, Plan
from scenarios.execution.world import (
    Shock,
    World,
    describe_effect,
    measure_lost,
    measure_worth,
    price_option,
    read_terms,
    strike,
)

MAX_KPI = 999


@dataclass(frozen=True, slots=True, kw_only=True)
class Actual:
    """The actual effect of a bought upgrade.

    Example: Actual(seat="coo", upgrade="contractor transfer", stated="13 days", actual="19 days", lost=75)
    """

    seat: str
    upgrade: str
    stated: str
    actual: str
    lost: int  # percent of the stated effect


@dataclass(frozen=True, slots=True, kw_only=True)
class Kpi:
    """One seat's structure as it turned out to be.

    Example: Kpi(seat="coo", limit=92, lost=10, figures={"finish": 65}, words="finish day 65")
    """

    seat: str
    limit: int  # percent of the hard limit that is kept: under 100 the limit is broken
    lost: int  # k$ less than the plan promised; negative where it is more
    figures: Mapping[str, int]
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOutcome:
    """The result of carrying out one plan.

    Example: carry_out(world, open_situation(world), plan)[1].kpis["coo"].limit == 92
    """

    cost: int  # k$ spent on it
    promised: int  # k$ that the plan was worth by what was known
    worth: int  # k$ that is in place
    kpis: Mapping[str, Kpi]  # by seat
    shocks: tuple[Shock, ...]  # that struck now
    actuals: tuple[Actual, ...]  # of every upgrade that was bought


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """The company's state after its plans so far.

    Example: open_situation(world).known.budget == world.case.budget
    """

    known: CompanyCase  # what the seats see; its budget is what is left, its base what is in place
    actual: CompanyCase  # the same with what upgrades not yet bought really bring
    spent: int  # k$
    option: str  # of the last plan; "" before the first
    tried: tuple[str, ...]  # options on which a plan was carried out


def open_situation(world: World) -> Situation:
    """Before any plan."""
    return Situation(known=world.case, actual=world.actual, spent=0, option="", tried=())


def carry_out(world: World, situation: Situation, plan: Plan) -> tuple[Situation, PlanOutcome]:
    """The situation after the plan, and what it brought.

    The plan's parts are paid for and in effect; then whatever the world has for this option strikes, once.
    With the first plan the reserve is set free.

    Raises:
        KeyError: the plan funds a part that cannot be bought.
    """
    before, option = situation.known, plan.option
    cost = sum(part.cost for part in plan_parts(before, plan))
    actuals = tuple(_list_actuals(situation, plan))
    known = _buy(_reveal(before, situation.actual, plan), plan)
    actual = _buy(situation.actual, plan)
    shocks = () if option in situation.tried else world.shocks[option]
    for shock in shocks:
        known, actual = strike(known, shock), strike(actual, shock)
    freed = 0 if situation.tried else world.reserve
    cut = sum(shock.amount for shock in shocks if shock.kind == "cut")
    left = max(0, before.budget - cost + freed - cut)
    after = Situation(
        known=replace(known, budget=left),
        actual=replace(actual, budget=left),
        spent=situation.spent + cost,
        option=option,
        tried=situation.tried if option in situation.tried else (*situation.tried, option),
    )
    outcome = PlanOutcome(
        cost=cost,
        promised=plan_worth(before, plan),
        worth=known.options[option].base,
        kpis=_measure_kpis(before, known, plan, shocks),
        shocks=shocks,
        actuals=actuals,
    )
    return after, outcome


def follow(world: World, plans: Sequence[Plan]) -> tuple[Situation, list[PlanOutcome]]:
    """The situation after these plans in turn, and what each brought."""
    situation, outcomes = open_situation(world), []
    for plan in plans:
        situation, outcome = carry_out(world, situation, plan)
        outcomes.append(outcome)
    return situation, outcomes


def list_changed_seats(outcome: PlanOutcome, plan: Plan) -> list[str]:
    """The seats whose facts changed: struck by a shock, or with something bought."""
    struck = {shock.seat for shock in outcome.shocks}
    return [seat for seat in outcome.kpis if seat in struck or plan.funded.get(seat)]


def _list_actuals(situation: Situation, plan: Plan) -> Iterator[Actual]:
    for seat, choice in plan.funded.items():
        stated = situation.known.structures[seat][plan.option]
        actual = situation.actual.structures[seat][plan.option]
        for name in choice:
            yield Actual(
                seat=seat,
                upgrade=name,
                stated=describe_effect(stated["upgrades"][name]),
                actual=describe_effect(actual["upgrades"][name]),
                lost=measure_lost(stated, name, actual["upgrades"][name]),
            )


def _reveal(known: CompanyCase, actual: CompanyCase, plan: Plan) -> CompanyCase:
    """Return what is known once the plan's upgrades are in effect: what they really bring."""
    letter = plan.option
    structures: dict[str, Mapping[str, Any]] = {}
    for seat, own in known.structures.items():
        names, real = plan.funded.get(seat, ()), actual.structures[seat][letter]["upgrades"]
        upgrades = {
            name: real[name] if name in names else upgrade
            for name, upgrade in own[letter]["upgrades"].items()
        }
        structures[seat] = {**own, letter: {**own[letter], "upgrades": upgrades}}
    return replace(known, structures=structures)


def _buy(case: CompanyCase, plan: Plan) -> CompanyCase:
    """The case with the plan's parts in effect; what they are worth goes into the option's base."""
    letter, gained = plan.option, 0
    structures = {seat: dict(own) for seat, own in case.structures.items()}
    for seat, choice in plan.funded.items():
        structure = case.structures[seat][letter]
        gained += measure_worth(case, seat, letter, choice) - measure_worth(case, seat, letter, ())
        had = {*list_bought(structure), *choice}
        bought = [name for name in structure["upgrades"] if name in had]
        if bought:
            structures[seat][letter] = {**structure, "bought": bought}
    option = case.options[letter]
    options = {**case.options, letter: replace(option, base=option.base + gained)}
    return price_option(replace(case, structures=structures, options=options), letter)


def _measure_kpis(
    before: CompanyCase, now: CompanyCase, plan: Plan, shocks: Sequence[Shock]
) -> dict[str, Kpi]:
    kpis, letter = {}, plan.option
    promised, total = {}, 0
    for seat, domain in ((seat, DOMAINS[seat]) for seat in before.structures):
        promised[seat] = measure_worth(before, seat, letter, plan.funded.get(seat, ()))
        figures = domain.measure(now.structures[seat][letter], ())
        lost = promised[seat] - domain.value(read_terms(now, seat), figures)
        total += lost
        kpis[seat] = Kpi(
            seat=seat,
            limit=measure_share(now, seat, figures),
            lost=lost,
            figures=figures,
            words=domain.write_figures(figures),
        )
    raised = plan_worth(before, plan) - now.options[letter].base - total  # by which a bill has risen
    for seat in {shock.seat for shock in shocks if shock.kind == "price"}:
        kpis[seat] = replace(kpis[seat], lost=kpis[seat].lost + raised)
    return kpis


def measure_share(case: CompanyCase, seat: str, figures: Mapping[str, int]) -> int:
    """Percent of the seat's hard limit that the figures keep, at most MAX_KPI; under 100 it is broken.

    Of an SLO it is the downtime allowed by the downtime there is, of a deadline and an appetite the limit by
    the figure, of a floor the figure by the limit.
    """
    limits = case.limits[seat]
    if seat == "cto":
        kept, of = WHOLE - limits["availability"], WHOLE - figures["availability"]
    elif seat == "coo":
        kept, of = _find_tightest(
            (limits["deadline"], figures["finish"]),
            (figures.get("milestone_day", 1), figures.get("milestone", 0)),
        )
    elif seat == "risk":
        kept, of = _find_tightest(
            (limits["expected_loss"], figures["expected_loss"]),
            (figures.get("asset_cap", 1), figures.get("asset_loss", 0)),
        )
    elif seat == "cost":
        kept, of = figures["quality"], limits["quality"]
    else:
        kept, of = int(DOMAINS[seat].keeps_limit(read_terms(case, seat), figures)), 1
    return min(MAX_KPI, 100 * kept // max(1, of))


def _find_tightest(*pairs: tuple[int, int]) -> tuple[int, int]:
    """Of pairs (limit, figure) the one whose figure takes the largest share of its limit."""
    return max(pairs, key=lambda pair: pair[1] / max(1, pair[0]))


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

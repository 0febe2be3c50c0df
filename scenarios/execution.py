"""Execution of plans: the world that they are carried out in, and the company's situation afterwards.

Seed and case determine a world, so that an option that is tried again meets the same one; none of it is told
before a plan is carried out. A shock is a change of the structure's own facts, so the domains' oracles
measure what it does: a contractor or a control that was funded may take its force away. Traits last: kinds of
upgrades that bring less than is stated, in all cases of a company. Once an upgrade is bought and in effect,
its actual effect shows.

The situation is a company case again, with what is left of the money as its budget: the same game, offers and
oracles serve the re-plan. Money spent is spent, what was bought stays in effect.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal, get_args

from typing_extensions import TypedDict

from scenarios.company.bought import list_bought
from scenarios.company.domain import Structure, Terms, price_parts
from scenarios.company.domains import DOMAINS
from scenarios.company.domains.architecture import WHOLE
from scenarios.company.optimum import best_on_option, blind_worth, plan_parts, plan_worth, scale_worth
from scenarios.company.records import CompanyCase, Plan
from scenarios.company.sectors import SECTORS

Kind = Literal["illness", "slower", "outages", "threat", "price", "quality", "cut"]
KINDS: tuple[Kind, ...] = get_args(Kind)
MAX_TRIES = 30  # candidates drawn for one option
LEAST_LOSS = 15  # percent of the worth of the option's best plan
CUT_SHARE = 0.25  # of shocked options on which the reserve is cut as well
SHOCK_SHARE = 0.5  # of (case, option) pairs that are struck
RESERVE_SHARE = (20, 45)  # percent of the budget; least and most
FAIL_SHARE = 0.3  # of the groups of upgrades that fall short in one company
LOSSES = (60, 80, 100)  # percent of the stated effect that is lost
MAX_KPI = 999  # percent
GROUPS: Mapping[str, tuple[str, ...]] = {  # seat -> groups that can fall short, by the names they begin with
    "cto": ("faster", "managed"),
    "coo": ("contractor", "extra shift"),
    "cost": ("committed", "premium"),
}  # of Risk every control is a group of its own


def read_terms(case: CompanyCase, seat: str) -> Terms:
    """Read what the seat's figures are worth in this case, and its limit."""
    return Terms(rates=case.rates[seat], limits=case.limits[seat])


def price_option(case: CompanyCase, option: str) -> CompanyCase:
    """The case with every part on one option priced from its structures as they stand."""
    parts = {
        seat: {
            **own,
            option: price_parts(DOMAINS[seat], case.structures[seat][option], read_terms(case, seat), option),
        }
        for seat, own in case.parts.items()
    }
    return replace(case, parts=parts)


def measure_worth(case: CompanyCase, seat: str, option: str, choice: tuple[str, ...]) -> int:
    """k$ that the figures of the seat's structure are worth with this choice."""
    domain = DOMAINS[seat]
    return domain.value(read_terms(case, seat), domain.measure(case.structures[seat][option], choice))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shock:
    """One shock.

    Example: Shock(kind="illness", seat="coo", option="B", target="Carla", amount=50)
    """

    kind: Kind
    seat: str  # whose structure is struck; "" where the reserve is cut
    option: str
    target: str  # person, component, step or item; "" where the reserve is cut
    amount: int  # percent; points of quality ("quality"); k$ ("cut")

    def describe(self) -> str:
        """The shock in one sentence."""
        return _WORDS[self.kind].format(target=self.target, amount=self.amount)


_WORDS: Mapping[Kind, str] = {
    "illness": "{target} falls ill: each package of {target} takes {amount} % more days, rounded up.",
    "slower": "{target} is slower than planned: its latency rises by {amount} %.",
    "outages": "{target} fails more often than planned: its downtime grows to {amount} % of what was stated.",
    "threat": "An attack is under way: the likelihood of {target} rises by {amount} %, to at most 95 %.",
    "price": "The supplier raises the list price of {target} by {amount} %.",
    "quality": "The supplier of {target} delivers {amount} points of quality less.",
    "cut": "The reserve is cut by {amount} k$.",
}


def strike_structure(structure: Structure, shock: Shock) -> dict[str, Any]:
    """The structure after the shock; the same for a shock that strikes no structure."""
    if shock.kind == "cut":
        return dict(structure)
    table, change = _CHANGES[shock.kind]
    facts = structure[table]
    struck = {
        name: change(name, fact, shock) if _is_struck(name, fact, shock) else fact
        for name, fact in facts.items()
    }
    return {**structure, table: struck}


def _is_struck(name: str, fact: Any, shock: Shock) -> bool:
    return bool((fact["owner"] if shock.kind == "illness" else name) == shock.target)


def _prolong(name: str, package: Any, shock: Shock) -> Any:
    return {**package, "days": -(-package["days"] * (100 + shock.amount) // 100)}


def _slow(name: str, component: Any, shock: Shock) -> Any:
    return {**component, "latency": component["latency"] * (100 + shock.amount) // 100}


def _break_down(name: str, component: Any, shock: Shock) -> Any:
    down = (WHOLE - component["availability"]) * shock.amount // 100
    return {**component, "availability": max(0, WHOLE - down)}


def _threaten(name: str, likelihood: Any, shock: Shock) -> Any:
    return max(likelihood, min(95, likelihood * (100 + shock.amount) // 100))


def _raise_price(name: str, item: Any, shock: Shock) -> Any:
    return {**item, "price": item["price"] + _rise(item, shock)}


def _rise(item: Any, shock: Shock) -> int:
    return int(item["price"] * shock.amount // 100)


def _worsen(name: str, item: Any, shock: Shock) -> Any:
    return {**item, "quality": max(0, item["quality"] - shock.amount)}


_CHANGES: Mapping[Kind, tuple[str, Callable[[str, Any, Shock], Any]]] = {
    "illness": ("packages", _prolong),
    "slower": ("components", _slow),
    "outages": ("components", _break_down),
    "threat": ("steps", _threaten),
    "price": ("items", _raise_price),
    "quality": ("items", _worsen),
}


def strike(case: CompanyCase, shock: Shock) -> CompanyCase:
    """The case after the shock: structure, parts, and the base of the struck option.

    The base changes by what the option without further parts is worth less; a higher list price lowers it by
    the rise, of which a committed tier saves its share. A cut of the reserve changes no structure.
    """
    if shock.kind == "cut":
        return case
    seat, letter = shock.seat, shock.option
    before = case.structures[seat][letter]
    structures = {
        name: {**own, letter: strike_structure(before, shock)} if name == seat else own
        for name, own in case.structures.items()
    }
    struck = replace(case, structures=structures)
    change = measure_worth(struck, seat, letter, ()) - measure_worth(case, seat, letter, ())
    if shock.kind == "price":
        change -= _rise(before["items"][shock.target], shock)
    option = case.options[letter]
    options = {**case.options, letter: replace(option, base=option.base + change)}
    return price_option(replace(struck, options=options), letter)


def draw_shocks(case: CompanyCase, option: str, reserve: int, rng: random.Random) -> tuple[Shock, ...]:
    """Return what strikes the company once a plan on this option is carried out.

    Of MAX_TRIES candidates the first that hurts the option's own best plan (a limit breaks, or LEAST_LOSS of
    its worth is lost), else the last; with it the reserve may be cut.
    """
    best = best_on_option(case, option, case.budget)
    plan = Plan(option=option, funded={}) if best is None else best[2]
    shock = _draw_shock(case, option, rng)
    for _ in range(MAX_TRIES):
        if _hurts(case, shock, plan):
            break
        shock = _draw_shock(case, option, rng)
    if rng.random() >= CUT_SHARE or reserve < 2:
        return (shock,)
    cut = Shock(kind="cut", seat="", option=option, target="", amount=rng.randint(reserve // 2, reserve))
    return (shock, cut)


def _hurts(case: CompanyCase, shock: Shock, plan: Plan) -> bool:
    struck = strike(case, shock)
    if not all(part.keeps_limit for part in plan_parts(struck, plan)):
        return True
    worth = plan_worth(case, plan)
    return 100 * (worth - plan_worth(struck, plan)) >= LEAST_LOSS * worth


def _draw_shock(case: CompanyCase, option: str, rng: random.Random) -> Shock:
    kind = rng.choice([kind for kind in KINDS if kind != "cut"])
    seat = _SEATS[kind]
    structure = case.structures[seat][option]
    if kind == "illness":
        targets = sorted({package["owner"] for package in structure["packages"].values()})
    else:
        targets = list(structure[_CHANGES[kind][0]])
    return Shock(
        kind=kind, seat=seat, option=option, target=rng.choice(targets), amount=rng.randint(*_AMOUNTS[kind])
    )


_SEATS: Mapping[Kind, str] = {
    "illness": "coo",
    "slower": "cto",
    "outages": "cto",
    "threat": "risk",
    "price": "cost",
    "quality": "cost",
}
_AMOUNTS: Mapping[Kind, tuple[int, int]] = {
    "illness": (30, 80),
    "slower": (40, 120),
    "outages": (150, 300),
    "threat": (25, 70),
    "price": (20, 50),
    "quality": (1, 3),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trait:
    """One group of upgrades that falls short.

    Example: Trait(seat="coo", group="contractor", loss=60)
    """

    seat: str
    group: str
    loss: int  # percent of the stated effect


def draw_traits(world: int, company: str, sector: str) -> tuple[Trait, ...]:
    """The company's traits: every group falls short with probability FAIL_SHARE, independently."""
    rng = random.Random(f"traits/{world}/{company}")
    return tuple(
        Trait(seat=seat, group=group, loss=rng.choice(LOSSES))
        for seat, group in list_groups(sector)
        if rng.random() < FAIL_SHARE
    )


def list_groups(sector: str) -> list[tuple[str, str]]:
    """(seat, group) of everything that can fall short in a company of this sector."""
    groups = [(seat, group) for seat, names in GROUPS.items() for group in names]
    return groups + [("risk", control) for control in SECTORS[sector].controls.values()]


def find_group(seat: str, upgrade: str) -> str:
    """The group that an upgrade belongs to; its own name where it belongs to none that can fall short.

    Example: find_group("coo", "contractor transfer") == "contractor"
    """
    for group in GROUPS.get(seat, ()):
        if upgrade.startswith(f"{group} "):
            return group
    return upgrade


def _find_effect(structure: Structure, upgrade: Mapping[str, Any]) -> tuple[str, int] | None:
    """The figure that the upgrade changes, and its value without it; None for one that cannot fall short.

    A contractor who is slower than the owner changes nothing.
    """
    if "takes" in upgrade:
        return "takes", max(upgrade["takes"], structure["packages"][upgrade["package"]]["days"])
    if "latency" in upgrade or "availability" in upgrade:
        figure = "latency" if "latency" in upgrade else "availability"
        return figure, structure["components"][upgrade["component"]][figure]
    if "to" in upgrade:
        return "to", structure["steps"][upgrade["step"]]
    return next(((figure, 0) for figure in ("saves", "percent", "points") if figure in upgrade), None)


def weaken(structure: Structure, name: str, loss: int) -> dict[str, Any]:
    """The upgrade with this percentage of its stated effect lost; at 100 it changes nothing.

    A contractor who falls short needs longer: at 100 as long as the owner would. What is lost is rounded up.
    """
    upgrade = dict(structure["upgrades"][name])
    effect = _find_effect(structure, upgrade)
    if effect is not None:
        figure, without = effect
        gained = without - upgrade[figure]
        lost = -(-abs(gained) * loss // 100)
        upgrade[figure] += lost if gained > 0 else -lost
    assert min(value for value in upgrade.values() if isinstance(value, int)) >= 0, upgrade
    return upgrade


def apply_traits(case: CompanyCase, traits: Iterable[Trait]) -> CompanyCase:
    """The case as it really is: every upgrade of a group that falls short with its actual effect."""
    losses = {(trait.seat, trait.group): trait.loss for trait in traits}
    structures = {
        seat: {letter: _weaken_all(structure, seat, losses) for letter, structure in own.items()}
        for seat, own in case.structures.items()
    }
    actual = replace(case, structures=structures)
    for option in case.options:
        actual = price_option(actual, option)
    return actual


def _weaken_all(structure: Structure, seat: str, losses: Mapping[tuple[str, str], int]) -> dict[str, Any]:
    upgrades = {
        name: weaken(structure, name, losses[seat, find_group(seat, name)])
        if (seat, find_group(seat, name)) in losses and name not in structure.get("bought", ())
        else upgrade
        for name, upgrade in structure["upgrades"].items()
    }
    return {**structure, "upgrades": upgrades}


def describe_effect(upgrade: Mapping[str, Any]) -> str:
    """Return what the upgrade brings, in a few words.

    Example: describe_effect({"cost": 9, "package": "transfer", "takes": 13}) == "13 days"
    """
    if "takes" in upgrade:
        return f"{upgrade['takes']} days"
    if "saves" in upgrade:
        return f"{upgrade['saves']} days saved"
    if "latency" in upgrade:
        return f"{upgrade['latency']} ms"
    if "availability" in upgrade:
        return f"{100 * upgrade['availability'] / WHOLE:.2f} % up"
    if "to" in upgrade:
        return f"likelihood {upgrade['to']} %"
    if "percent" in upgrade:
        return f"{upgrade['percent']} % off"
    if "points" in upgrade:
        return f"{upgrade['points']} points"
    return "a fifth less time" if "person" in upgrade else "one more machine"


def measure_lost(structure: Structure, name: str, actual: Mapping[str, Any]) -> int:
    """Percent of the stated effect that the actual upgrade lacks; 0 for one that cannot fall short."""
    stated = structure["upgrades"][name]
    effect = _find_effect(structure, stated)
    if effect is None:
        return 0
    figure, without = effect
    whole, left = abs(without - stated[figure]), abs(without - actual[figure])
    return int(max(0, min(100, 100 * (whole - left) // max(1, whole))))


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """One case and what happens in it.

    Example: draw_world(scenario.case, seed=3).shocks["B"][0].describe()
    """

    case: CompanyCase  # as the seats are told
    actual: CompanyCase  # with what upgrades really bring, before any shock
    traits: tuple[Trait, ...]
    shocks: Mapping[str, tuple[Shock, ...]]  # by option; () where nothing happens
    reserve: int  # k$ that may be spent once a plan was carried out


def find_reserve(case: CompanyCase) -> int:
    """k$ that the company keeps for what nobody foresaw; a pure function of the case's coordinates."""
    rng = random.Random(f"reserve/{case.split}/{case.seed}/{case.index}/{case.difficulty}")
    return max(2, case.budget * rng.randint(*RESERVE_SHARE) // 100)


def list_companies() -> list[str]:
    """All companies, by name."""
    return [name for sector in SECTORS.values() for name in sector.companies]


def find_company(case: CompanyCase) -> str:
    """The company that the case is about; "" where it bears no known name."""
    names = SECTORS[case.sector].companies if case.sector in SECTORS else ()
    return next((name for name in names if name in case.situation), "")


def draw_world(
    case: CompanyCase, *, seed: int = 0, shock_share: float = SHOCK_SHARE, with_traits: bool = False
) -> World:
    """The world of this seed; a company has the same traits in all of its cases there."""
    reserve = find_reserve(case)
    shocks = {}
    for option in case.options:
        key = f"event/{seed}/{case.split}/{case.seed}/{case.index}/{case.difficulty}/{option}"
        rng = random.Random(key)
        is_struck = rng.random() < shock_share
        shocks[option] = draw_shocks(case, option, reserve, rng) if is_struck else ()
    company = find_company(case)
    traits = draw_traits(seed, company, case.sector) if company and with_traits else ()
    return World(
        case=case,
        actual=apply_traits(case, traits) if traits else case,
        traits=traits,
        shocks=shocks,
        reserve=reserve,
    )


class ActualEffect(TypedDict):
    """The actual effect of a bought upgrade.

    Example: {"seat": "coo", "upgrade": "contractor transfer", "stated": "13 days", "actual": "19 days",
              "lost": 75}
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
    actuals: tuple[ActualEffect, ...]  # of every upgrade that was bought


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


def list_changed_seats(outcome: PlanOutcome, plan: Plan) -> list[str]:
    """The seats whose facts changed: struck by a shock, or with something bought."""
    struck = {shock.seat for shock in outcome.shocks}
    return [seat for seat in outcome.kpis if seat in struck or plan.funded.get(seat)]


def _list_actuals(situation: Situation, plan: Plan) -> Iterator[ActualEffect]:
    for seat, choice in plan.funded.items():
        stated = situation.known.structures[seat][plan.option]
        actual = situation.actual.structures[seat][plan.option]
        for name in choice:
            yield ActualEffect(
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

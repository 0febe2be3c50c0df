"""Shocks: something unforeseen that strikes one seat's structure on one option, or the company's reserve.

A shock is a change of the structure's own facts, so the domains' oracles measure what it does: a contractor
or a control that was funded may take its force away.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from scenarios.company.domain import Structure, Terms, price_parts
from scenarios.company.domains import DOMAINS
from scenarios.company.domains.architecture import WHOLE
from scenarios.company.optimum import best_on_option, plan_parts, plan_worth
from scenarios.company.records import CompanyCase, Plan


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


Kind = Literal["illness", "slower", "outages", "threat", "price", "quality", "cut"]
KINDS: tuple[Kind, ...] = get_args(Kind)
MAX_TRIES = 30  # candidates drawn for one option
LEAST_LOSS = 15  # percent of the worth of the option's best plan
CUT_SHARE = 0.25  # of shocked options on which the reserve is cut as well


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

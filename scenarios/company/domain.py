"""The contract of a domain: one seat's kind of structure, everything that can be bought on it, exact figures.

A structure is a JSON object whose "upgrades" maps the names of what can be bought to their cost and effect.
A choice is a tuple of those names in the structure's order. Figures are whole numbers.
"""

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from scenarios.company.records import Part
from scenarios.company.sectors import Sector

Choice = tuple[str, ...]
Structure = Mapping[str, Any]
Figures = Mapping[str, int]
NUM_UPGRADES = (3, 3, 4, 4, 4, 5, 5, 6, 6, 7)  # per structure, by difficulty 1-10
LEAST_COST, MOST_COST = 3, 12  # of one upgrade at the middle price level
PRICE_LEVELS = (70, 85, 100, 115, 130)  # percent; one per option, the same for all seats


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Worth of a seat's figures and its hard limit, the same for every option of a case.

    Example: Terms(rates={"day": 2}, limits={"deadline": 60})
    """

    rates: Mapping[str, int]
    limits: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Requirements that a structure is drawn for.

    Example: Request(sector=SECTORS["bank"], difficulty=3, terms=terms, price_level=100, breaks_limit=False)
    """

    sector: Sector
    difficulty: int
    terms: Terms
    price_level: int  # percent of the middle prices
    breaks_limit: bool  # whether the limit breaks where nothing is bought
    vetoes: bool = False  # whether it is to break whatever is bought


def list_subsets(structure: Structure) -> list[Choice]:
    """Every subset of the upgrades, each in the structure's order, () first."""
    subsets: list[Choice] = [()]
    for name in structure["upgrades"]:
        subsets += [(*subset, name) for subset in subsets]
    return subsets


def add_costs(structure: Structure, choice: Choice) -> int:
    """Sum of the upgrades' costs."""
    upgrades = structure["upgrades"]
    cost = 0
    for name in choice:
        cost += upgrades[name]["cost"]
    return cost


def write_costs(structure: Structure) -> str:
    """Names and costs of the upgrades.

    Example: write_costs(structure) == "overtime Anna 6, contractor transfer 9"
    """
    return ", ".join(f"{name} {upgrade['cost']}" for name, upgrade in structure["upgrades"].items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """One seat's domain.

    Example: DOMAINS["coo"].measure(structure, ("overtime Anna",)) == {"finish": 52}
    """

    seat: str
    draw_terms: Callable[[random.Random], Terms]
    draw: Callable[[random.Random, Request], dict[str, Any]]  # a candidate; see draw_structure
    list_choices: Callable[[Structure], list[Choice]] = list_subsets  # all bought together, () first
    price: Callable[[Structure, Choice], int] = add_costs  # cost in k$
    measure: Callable[[Structure, Choice], dict[str, int]]  # exact figures
    measure_again: Callable[[Structure, Choice], tuple[int, dict[str, int]]]  # (cost, figures), second method
    value: Callable[[Terms, Figures], int]  # k$ that the figures are worth
    keeps_limit: Callable[[Terms, Figures], bool]
    describe: Callable[[Structure], str]  # the whole structure as text
    write_upgrades: Callable[[Structure], str] = write_costs  # names and costs, for prompts
    write_figures: Callable[[Figures], str]  # as the tool measure writes them
    subject: str  # of the seat's work, for prompts: "architectures"
    rules: str  # every rule that figures and worth depend on
    terms: tuple[str, ...]  # by wording, templates of the rates and the limit in sentences, see write_terms
    second_limit: tuple[str, str] = ("", "")  # key of structures that have a second hard limit, its rule


def write_terms(domain: Domain, terms: Terms, wording: int, structures: Iterable[Structure]) -> str:
    """Rates and hard limit of one case, in sentences; with the second limit's rule if a structure has it."""
    figures: dict[str, int | str] = {**terms.rates, **terms.limits}
    if "availability" in terms.limits:
        figures["availability"] = write_percent(terms.limits["availability"])
    key, rule = domain.second_limit
    more = f" {rule}" if any(key in structure for structure in structures) else ""
    return domain.terms[wording].format(**figures) + more


def write_percent(availability: int) -> str:
    """Example: write_percent(9950) == "99.50 %" """
    return f"{availability // 100}.{availability % 100:02d} %"


def draw_cost(rng: random.Random, price_level: int) -> int:
    """Cost of one upgrade at a price level."""
    return max(2, rng.randint(LEAST_COST, MOST_COST) * price_level // 100)


def price_parts(domain: Domain, structure: Structure, terms: Terms, option: str) -> tuple[Part, ...]:
    """Every part of one structure with exact cost and worth, () first."""
    measure, value, keeps_limit, price = domain.measure, domain.value, domain.keeps_limit, domain.price
    before = value(terms, measure(structure, ()))
    parts = []
    for choice in domain.list_choices(structure):
        figures = measure(structure, choice)
        cost, worth = price(structure, choice), value(terms, figures) - before
        parts.append(Part(domain.seat, option, choice, cost, worth, keeps_limit(terms, figures), figures))
    return tuple(parts)

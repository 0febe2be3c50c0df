"""The world that plans are carried out in: what strikes each option, and what the company really gets.

Seed and case determine it, so that an option that is tried again meets the same world. None of it is told
before a plan is carried out.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass

from scenarios.company.records import CompanyCase
from scenarios.company.sectors import SECTORS
from scenarios.execution.shocks import Shock, draw_shocks
from scenarios.execution.traits import Trait, apply_traits, draw_traits

SHOCK_SHARE = 0.5  # of (case, option) pairs that are struck
RESERVE_SHARE = (20, 45)  # percent of the budget; least and most


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

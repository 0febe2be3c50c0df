"""Outcomes of carried-out plans: a seeded simulation that holds the truth and returns observations."""

import random
from collections.abc import Sequence
from typing import Protocol

from typing_extensions import TypedDict

from scenarios.team import TeamScenario
from simulator.governance.gate.approvals import PlanPart

SHOCK_SHARE = 0.35  # of (case, option) pairs in which something unforeseen happens
SHOCK_LOSS = (40, 95)  # least and greatest percent that the seat it hits loses of what it got
SHOCKS = ("supplier lost", "demand jumped", "key people left", "rule changed", "outage")
MAX_KPI = 999


class Observation(TypedDict):
    """What can be observed after execution.

    Example: {"kpis": {"cto": 131, "cost": 96}, "shock": "supplier lost"}
    """

    kpis: dict[str, int]  # seat -> what it got, in percent of its hard limit: under 100 the limit is broken
    shock: str  # "" where nothing unforeseen happened


class Outcomes(Protocol):
    """Outcomes of the plans of one case."""

    def observe(self, option: str, parts: Sequence[PlanPart]) -> Observation:
        """Return the observation; the same arguments give the same one."""
        ...


class SimulatedOutcomes:
    """Outcomes of a generated case: true utilities, and a shock that seed, case and option determine.

    Trying an option again meets the same world, so that what execution revealed stays true.
    """

    def __init__(self, scenario: TeamScenario, *, seed: int = 0, shock_share: float = SHOCK_SHARE) -> None:
        self._scenario, self._seed, self._shock_share = scenario, seed, shock_share

    def observe(self, option: str, parts: Sequence[PlanPart]) -> Observation:
        """See Outcomes.observe."""
        kept, shock = self._strike(option)
        kpis = {}
        for part in parts:
            facts = self._scenario.seats[part.role].facts
            kpis[part.role] = min(
                MAX_KPI, kept[part.role] * facts["utilities"][option] // max(1, facts["limit"])
            )
        return Observation(kpis=kpis, shock=shock)

    def realise(self, option: str) -> dict[str, int]:
        """Return what each seat would really get from the option, in hundredths of a point of utility.

        The truth behind `observe`: for scoring alone, never shown to a team.
        """
        kept, _ = self._strike(option)
        return {
            role: kept[role] * seat.facts["utilities"][option] for role, seat in self._scenario.seats.items()
        }

    def _strike(self, option: str) -> tuple[dict[str, int], str]:
        """Return the percent of its utility that each seat keeps, and the shock."""
        rng = random.Random(f"outcome/{self._seed}/{self._scenario.key}/{option}")
        is_shocked = rng.random() < self._shock_share
        hit, loss = rng.choice(list(self._scenario.seats)), rng.randint(*SHOCK_LOSS)
        shock = rng.choice(SHOCKS)
        kept = dict.fromkeys(self._scenario.seats, 100)
        if is_shocked:
            kept[hit] = 100 - loss
        return kept, shock if is_shocked else ""

"""A seeded simulation of outcomes for cases that people wrote; it makes no forecast.

A seat that gave figures gets what it said the option is worth, in percent of its limit. A seat of words alone
has no figure to measure against: it starts at 120 percent, as planned. The same seeded shocks as in generated
cases strike both. Nothing in it is an estimate of the real company.
"""

import random
from collections.abc import Sequence

from scenarios.written.written_case import FreeCase
from simulator.governance.gate.approvals import PlanPart
from simulator.governance.outcomes import MAX_KPI, SHOCK_LOSS, SHOCK_SHARE, SHOCKS, Observation

PLANNED_KPI = 120  # percent, of a seat without figures


class FreeOutcomes:
    """Simulated outcomes of one written case; seed, case and option determine them."""

    def __init__(self, case: FreeCase, *, seed: int = 0, shock_share: float = SHOCK_SHARE) -> None:
        self._case, self._seed, self._shock_share = case, seed, shock_share

    def observe(self, option: str, parts: Sequence[PlanPart]) -> Observation:
        """See Outcomes.observe."""
        rng = random.Random(f"outcome/{self._seed}/{self._case.key}/{option}")
        is_shocked = rng.random() < self._shock_share
        hit, loss = rng.choice(list(self._case.seats)), rng.randint(*SHOCK_LOSS)
        shock = rng.choice(SHOCKS)
        kpis = {}
        for part in parts:
            kept = 100 - loss if is_shocked and part.role == hit else 100  # percent
            kpis[part.role] = min(MAX_KPI, kept * self._planned(part.role, option) // 100)
        return Observation(kpis=kpis, shock=shock if is_shocked else "")

    def _planned(self, role: str, option: str) -> int:
        """Percent of the seat's limit that the option brings where nothing unforeseen happens."""
        facts = self._case.seats[role].facts
        if not facts:
            return PLANNED_KPI
        return int(100 * facts["utilities"][option] // max(1, facts["limit"]))

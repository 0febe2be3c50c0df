"""A seeded simulation of outcomes for cases that people wrote; it makes no forecast.

There are no structures to measure: what seats reported is what they get, unless something unforeseen takes
from one funded part a share of its worth, and from the seat its limit where that hangs on the part. Nothing
in it is an estimate of the real company.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from scenarios.company.records import Part
from scenarios.execution.world import SHOCK_SHARE
from scenarios.team.listed_seat import is_listed, list_parts
from scenarios.team.playable import PlayableCase, PublicCase, Seat
from simulator.governance.outcomes import CarriedPlan, Observation, tell_progress

RESERVE_SHARE = 20  # percent of the budget
SHOCK_LOSS = (50, 100)  # least and greatest percent that the part it hits loses of its worth
NEEDED_SHARE = 0.5  # of shocks that hit a part which a limit hangs on, where there is one
SHOCKS = (
    "A supplier is lost.",
    "Demand jumps.",
    "Key people leave.",
    "A rule changes.",
    "There is an outage.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuedCase:
    """A written case after plans were carried out.

    Example: FreeOutcomes(case).continue_case([plan]).public.budget == 12
    """

    key: str
    public: PublicCase
    seats: Mapping[str, Seat]

    @property
    def options(self) -> tuple[str, ...]:
        return tuple(self.public.options)

    def parts_of(self, seat: str, option: str) -> tuple[Part, ...] | None:
        """Every part that the seat can propose, () first; None for a seat of words alone."""
        own = self.seats[seat]
        return list_parts(own, option) if is_listed(own) else None


class FreeOutcomes:
    """Simulated outcomes of one written case; seed, case and option determine them."""

    def __init__(self, case: PlayableCase, *, seed: int = 0, shock_share: float = SHOCK_SHARE) -> None:
        self._case, self._seed, self._shock_share = case, seed, shock_share

    @property
    def reserve(self) -> int:
        """See Outcomes.reserve."""
        return self._case.public.budget * RESERVE_SHARE // 100

    def continue_case(self, plans: Sequence[CarriedPlan]) -> PlayableCase:
        """See Outcomes.continue_case."""
        case = self._case
        for number, plan in enumerate(plans):
            case = self._continue(case, plan, self.observe(plans[:number], plan))
        return case

    def observe(self, before: Sequence[CarriedPlan], plan: CarriedPlan) -> Observation:
        """See Outcomes.observe."""
        rng = random.Random(f"outcome/{self._seed}/{self._case.key}/{plan.option}")
        is_shocked = rng.random() < self._shock_share and all(one.option != plan.option for one in before)
        hit = self._choose_hit(plan, rng)
        loss, shock = rng.randint(*SHOCK_LOSS), rng.choice(SHOCKS)
        lost = dict.fromkeys(self._case.seats, 0)
        kpis = dict.fromkeys(self._case.seats, 100)
        if is_shocked:
            lost[hit] = max(0, plan.worths.get(hit, 0)) * loss // 100
            if plan.option in self._case.seats[hit].facts.get("needs", ()):
                kpis[hit] = 100 - loss
        spent = sum(sum(one.costs.values()) for one in (*before, plan))
        promised = self._find_base(before, plan.option) + sum(plan.worths.values())
        return Observation(
            kpis=kpis,
            lost=lost,
            figures={seat: "as reported" if kpis[seat] == 100 else "short of its limit" for seat in kpis},
            cost=sum(plan.costs.values()),
            promised=promised,
            worth=promised - sum(lost.values()),
            left=max(0, self._case.public.budget + self.reserve - spent),
            shocks=[f"{shock} What was bought of {hit} brings {loss} % less."] if is_shocked else [],
            actuals=[],
            changed=[seat for seat in kpis if plan.funded.get(seat) or (is_shocked and seat == hit)],
        )

    def _choose_hit(self, plan: CarriedPlan, rng: random.Random) -> str:
        """Choose whom it hits: every other time a seat whose limit hangs on its part, where there is one."""
        seats = self._case.seats
        funded = [seat for seat in seats if plan.funded.get(seat)] or list(seats)
        needed = [seat for seat in funded if plan.option in seats[seat].facts.get("needs", ())]
        return rng.choice(needed if needed and rng.random() < NEEDED_SHARE else funded)

    def _find_base(self, plans: Sequence[CarriedPlan], option: str) -> int:
        return self.continue_case(plans).public.base[option]

    def _continue(self, case: PlayableCase, plan: CarriedPlan, told: Observation) -> ContinuedCase:
        options = {
            letter: replace(option, base=told["worth"]) if letter == plan.option else option
            for letter, option in case.public.options.items()
        }
        situation = " ".join([self._case.public.situation, *tell_progress(plan, told)])
        return ContinuedCase(
            key=case.key,
            public=replace(case.public, options=options, budget=told["left"], situation=situation),
            seats={
                role: replace(seat, facts=_buy(seat, plan, is_kept=told["kpis"][role] >= 100))
                for role, seat in case.seats.items()
            },
        )


def _buy(seat: Seat, plan: CarriedPlan, *, is_kept: bool) -> dict[str, Any]:
    """The seat's facts once its part is bought: gone from the list, and the need with it.

    Where the limit broke all the same, nothing on the list can mend it: the seat vetoes the option.
    """
    bought, facts, option = plan.funded.get(seat.role, ()), dict(seat.facts), plan.option
    if not bought:
        return facts
    if "upgrades" in facts:
        own = facts["upgrades"].get(option, {})
        left = {name: upgrade for name, upgrade in own.items() if name not in bought}
        facts["upgrades"] = {**facts["upgrades"], option: left}
    if "needs" in facts:
        facts["needs"] = {letter: names for letter, names in facts["needs"].items() if letter != option}
    if not is_kept:
        facts["veto"] = sorted({*facts.get("veto", ()), option})
    if "words" in facts:
        facts["words"] = f"{facts['words']} Bought on option {option} by now: {', '.join(bought)}."
    return facts

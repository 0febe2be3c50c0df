"""Outcomes of carried-out plans: seeded simulations that hold the truth and return observations.

A generated case is measured by its seats' oracles. A case that people wrote has nothing to measure: what
seats reported is what they get, unless something unforeseen takes from one funded part a share of its
worth, and from the seat its limit where that hangs on the part. Nothing in it is a forecast or an estimate
of the real company.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Protocol

from typing_extensions import TypedDict

from scenarios.company.records import CompanyCase, Plan
from scenarios.execution import (
    SHOCK_SHARE,
    ActualEffect,
    PlanOutcome,
    Situation,
    World,
    carry_out,
    draw_world,
    list_changed_seats,
    open_situation,
)
from scenarios.team import TeamScenario, seat_team, with_seat
from scenarios.team.listed_seat import needed_on, upgrades_on
from scenarios.team.playable import PlayableCase, Seat
from scenarios.written.written_case import FreeCase
from simulator.governance.proposal import Proposal

RESERVE_SHARE = 20  # percent of a written case's budget
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
class CarriedPlan(Plan):
    """A plan with what its parts cost and promise, as it was approved.

    Example: CarriedPlan(option="B", funded={"cto": ("spare node",)}, costs={"cto": 8}, worths={"cto": 21})
    """

    costs: Mapping[str, int]  # by seat, k$
    worths: Mapping[str, int]


def read_plan(proposal: Proposal) -> CarriedPlan:
    """Return what a proposal funds; seats by name, as a plan that is read from the log has them."""
    bought = sorted((part for part in proposal.parts if part.choice), key=lambda part: part.role)
    return CarriedPlan(
        option=proposal.option,
        funded={part.role: tuple(part.choice) for part in bought},
        costs={part.role: part.cost for part in bought},
        worths={part.role: part.worth for part in bought},
    )


class Observation(TypedDict):
    """Observations after execution; money in k$.

    Example: {"kpis": {"coo": 92}, "lost": {"coo": 10}, "figures": {"coo": "finish day 65"}, "cost": 40,
              "promised": 100, "worth": 90, "left": 4, "shocks": ["Carla falls ill: ..."], "actuals": [],
              "changed": ["coo"]}
    """

    kpis: dict[str, int]  # seat -> percent of its hard limit that is kept: under 100 it is broken
    lost: dict[str, int]  # seat -> what its figures are worth less than the plan promised
    figures: dict[str, str]  # seat -> what was measured, in words
    cost: int  # spent on this plan
    promised: int  # what the plan was worth by what was known
    worth: int  # what is in place
    left: int  # for a re-plan, reserve included
    shocks: list[str]  # in words; empty where nothing unforeseen happened
    actuals: list[ActualEffect]  # of every upgrade that was bought
    changed: list[str]  # seats whose facts are others now


class Outcomes(Protocol):
    """Outcomes of the plans of one case."""

    @property
    def reserve(self) -> int:
        """k$ beside the budget that may be spent once a plan was carried out."""

    def continue_case(self, plans: Sequence[CarriedPlan]) -> PlayableCase:
        """Return the case after these plans in turn; without any, the case itself."""

    def observe(self, before: Sequence[CarriedPlan], plan: CarriedPlan) -> Observation:
        """Return what the plan brings after those before it; the same arguments give the same one.

        Raises:
            KeyError: the plan funds a part that cannot be bought.
        """


class SimulatedOutcomes:
    """Outcomes of a generated case in the world of a seed; structures are measured by the seats' own oracles.

    Trying an option again meets the same world, so that what execution revealed stays true.
    """

    def __init__(
        self,
        scenario: TeamScenario,
        *,
        seed: int = 0,
        shock_share: float = SHOCK_SHARE,
        with_traits: bool = False,
    ) -> None:
        self.scenario = scenario
        self._seed, self._shock_share, self._with_traits = seed, shock_share, with_traits
        self._followed: dict[str, Situation] = {}  # by the plans before it

    @cached_property
    def world(self) -> World:
        """The world, drawn when it is first needed."""
        case = self.scenario.case
        domains = {seat: parts for seat, parts in case.parts.items() if seat in case.structures}
        return draw_world(
            replace(case, parts=domains),
            seed=self._seed,
            shock_share=self._shock_share,
            with_traits=self._with_traits,
        )

    @property
    def reserve(self) -> int:
        return self.world.reserve

    def follow(self, plans: Sequence[CarriedPlan]) -> Situation:
        """Return the situation after these plans in turn."""
        if not plans:
            return open_situation(self.world)
        name = repr(plans)
        if name not in self._followed:
            self._followed[name] = self._carry_out(self.follow(plans[:-1]), plans[-1])[0]
        return self._followed[name]

    def continue_case(self, plans: Sequence[CarriedPlan]) -> TeamScenario:
        if not plans:
            return self.scenario
        told = self.observe(plans[:-1], plans[-1])
        progress = " ".join([self.scenario.case.situation, *tell_progress(plans[-1], told)])
        case = replace(self.follow(plans).known, situation=progress)
        scenario = seat_team(case, self.scenario.offers_per_option)
        for role, seat in self.scenario.seats.items():
            if role not in case.structures:
                scenario = with_seat(scenario, role, reduce(_buy, plans, seat).facts)
        return scenario

    def observe(self, before: Sequence[CarriedPlan], plan: CarriedPlan) -> Observation:
        after, outcome = self._carry_out(self.follow(before), plan)
        kept = {role: self._keeps_listed_limit(role, [*before, plan]) for role in _list_others(self.scenario)}
        return Observation(
            kpis={seat: kpi.limit for seat, kpi in outcome.kpis.items()}
            | {seat: 100 * is_kept for seat, is_kept in kept.items()},
            lost={seat: kpi.lost for seat, kpi in outcome.kpis.items()} | dict.fromkeys(kept, 0),
            figures={seat: kpi.words for seat, kpi in outcome.kpis.items()}
            | dict.fromkeys(kept, "as listed"),
            cost=outcome.cost,
            promised=outcome.promised,
            worth=outcome.worth,
            left=after.known.budget,
            shocks=[shock.describe() for shock in outcome.shocks],
            actuals=[*outcome.actuals],
            changed=[*list_changed_seats(outcome, plan), *(seat for seat in kept if plan.funded.get(seat))],
        )

    def _carry_out(self, situation: Situation, plan: CarriedPlan) -> tuple[Situation, PlanOutcome]:
        """Carry out the parts that structures measure; those of listed seats bring what was listed."""
        others = [seat for seat in _list_others(self.scenario) if plan.funded.get(seat)]
        measured = {seat: choice for seat, choice in plan.funded.items() if seat not in others}
        after, outcome = carry_out(self.world, situation, Plan(option=plan.option, funded=measured))
        if not others:
            return after, outcome
        cost, worth = (sum(table[seat] for seat in others) for table in (plan.costs, plan.worths))
        return replace(
            after,
            known=_add(after.known, plan.option, cost, worth),
            actual=_add(after.actual, plan.option, cost, worth),
            spent=after.spent + cost,
        ), replace(
            outcome,
            cost=outcome.cost + cost,
            promised=outcome.promised + worth,
            worth=outcome.worth + worth,
        )

    def _keeps_listed_limit(self, role: str, plans: Sequence[CarriedPlan]) -> bool:
        option = plans[-1].option
        bought = {name for plan in plans if plan.option == option for name in plan.funded.get(role, ())}
        parts = self.scenario.parts_of(role, option)
        return any(part.keeps_limit for part in parts if set(part.choice) == bought)


def _list_others(scenario: TeamScenario) -> list[str]:
    """List the seats whose parts stand in a list."""
    return [seat for seat in scenario.seats if seat not in scenario.case.structures]


def _add(case: CompanyCase, option: str, cost: int, worth: int) -> CompanyCase:
    known = case.options[option]
    options = {**case.options, option: replace(known, base=known.base + worth)}
    return replace(case, options=options, budget=max(0, case.budget - cost))


def tell_progress(plan: Plan, observation: Observation) -> list[str]:
    """Return what everybody is told before a re-plan: what is in place, what happened, what money is left."""
    bought = ", ".join(name for choice in plan.funded.values() for name in choice) or "nothing"
    return [
        f"Option {plan.option} is under way; bought for it: {bought}. Its value below is what it is worth "
        "now with all that was bought for it.",
        *observation["shocks"],
        "Money that was spent is not paid back, and what was bought serves its own option only. The budget "
        "below is what is left, the reserve included.",
    ]


class FreeOutcomes:
    """Simulated outcomes of one written case; seed, case and option determine them.

    Example: FreeOutcomes(case).continue_case([plan]).public.budget == 12
    """

    def __init__(self, case: FreeCase, *, seed: int = 0, shock_share: float = SHOCK_SHARE) -> None:
        self._case, self._seed, self._shock_share = case, seed, shock_share

    @property
    def reserve(self) -> int:
        return self._case.public.budget * RESERVE_SHARE // 100

    def continue_case(self, plans: Sequence[CarriedPlan]) -> FreeCase:
        case = self._case
        for number, plan in enumerate(plans):
            case = self._continue(case, plan, self.observe(plans[:number], plan))
        return case

    def observe(self, before: Sequence[CarriedPlan], plan: CarriedPlan) -> Observation:
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
        promised = self.continue_case(before).public.base[plan.option] + sum(plan.worths.values())
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

    def _continue(self, case: FreeCase, plan: CarriedPlan, told: Observation) -> FreeCase:
        options = {
            letter: replace(option, base=told["worth"]) if letter == plan.option else option
            for letter, option in case.public.options.items()
        }
        situation = " ".join([self._case.public.situation, *tell_progress(plan, told)])
        return replace(
            case,
            public=replace(case.public, options=options, budget=told["left"], situation=situation),
            seats={
                role: _buy(seat, plan, is_kept=told["kpis"][role] >= 100) for role, seat in case.seats.items()
            },
        )


def _buy(seat: Seat, plan: CarriedPlan, *, is_kept: bool = True) -> Seat:
    """Return the seat once its part is bought: gone from the list, and the needs with it that it meets.

    Where the limit broke all the same, nothing on the list can mend it: the seat vetoes the option.
    """
    bought, facts, option = plan.funded.get(seat.role, ()), dict(seat.facts), plan.option
    if not bought:
        return seat
    if "upgrades" in facts:
        own = upgrades_on(seat, option)
        facts["upgrades"] = {
            **facts["upgrades"],
            option: {name: upgrade for name, upgrade in own.items() if name not in bought},
        }
    if "needs" in facts:
        needs = {**facts["needs"], option: [name for name in needed_on(seat, option) if name not in bought]}
        facts["needs"] = {letter: names for letter, names in needs.items() if names}
    if not is_kept:
        facts["veto"] = sorted({*facts.get("veto", ()), option})
    if "words" in facts:
        facts["words"] = f"{facts['words']} Bought on option {option} by now: {', '.join(bought)}."
    return replace(seat, facts=facts)

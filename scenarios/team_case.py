"""The team's case: K options that each carry an architecture, a work plan, a threat graph and a price list.

Every specialist sees the exact figures of its own structures only, as utilities, with its own stakes and
hard limit. The team's value of an option is the stakes-weighted mean utility; a veto makes it worthless.
"""

import bisect
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

from roles.base import Role
from roles.registry import ROLES
from roles.team import SPECIALISTS, Decision
from scenarios.base import Split, check_coordinates, scenario_rng
from scenarios.reconcile import draw_limit, find_deadlock
from scenarios.sectors import SECTORS
from scenarios.world.architecture import Figures, build_architecture, figures
from scenarios.world.prices import best_total, build_prices
from scenarios.world.threats import build_threats, total_exposure
from scenarios.world.work import best_finish, build_work

OPTIONS = "ABCDEF"
NUM_OPTIONS = (3, 3, 3, 4, 4, 4, 5, 5, 6, 6)  # by difficulty 1-10
VETO_SHARE = (0.1, 0.12, 0.14, 0.16, 0.18, 0.2, 0.22, 0.24, 0.26, 0.28)  # of specialists with a veto
TWO_CRITICAL_SHARE = (
    0.0,
    0.05,
    0.1,
    0.15,
    0.2,
    0.25,
    0.3,
    0.35,
    0.4,
    0.45,
)  # of cases with two critical roles
FAVOURITE_LEAD = {1: 12, 2: 8, 3: 4}  # least lead of a specialist's favourite, by difficulty; 1 above
LIMIT_CLEARANCE = {1: 4, 2: 3, 3: 2}  # distance of a limit from the utilities around it, where there is room
DEADLOCK_SHARE = 0.03  # of cases in which every option is vetoed
ORDINARY_STAKES, CRITICAL_STAKES = (10, 19), (70, 99)
LEAST_UTILITY, GREATEST_UTILITY = 10, 99
NUM_REFERENCE_CASES = 128  # structures per role and difficulty that a figure is ranked among
MOST_DRAWS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """What one specialist sees.

    Example: Seat(brief="Retail case. CTO seat. Stakes 83. A 45 B 72 C 28. Limit 30.", facts={...})
    """

    brief: str
    facts: Mapping[str, Any]  # structures, figures and utilities per option; stakes; limit


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamScenario:
    """One joint case. `truth` never leaves the verifier.

    Example: generate("train", seed=0, index=7, difficulty=2).key == "team/train/0/7/2"
    """

    family: str = "team"
    split: Split
    seed: int
    index: int
    difficulty: int
    sector: str
    options: tuple[str, ...]
    seats: Mapping[str, Seat]  # by specialist
    truth: Mapping[str, Any]  # value (None where vetoed), vetoes, best, average, no_feasible: see `weigh`

    @property
    def key(self) -> str:
        return f"{self.family}/{self.split}/{self.seed}/{self.index}/{self.difficulty}"


class View(NamedTuple):
    """How one specialist sees an option: its structure, and the one figure of it that should be small."""

    build: Callable[[random.Random, int], dict[str, Any]]
    measure: Callable[[dict[str, Any]], int]


def blend(found: Figures) -> int:
    """The CTO's figure: a percent of downtime weighs as much as 3 ms of latency."""
    return found.latency + 3 * (100 - found.availability)


VIEWS: dict[str, View] = {
    "cto": View(build_architecture, lambda structure: blend(figures(structure))),
    "coo": View(build_work, best_finish),
    "risk": View(build_threats, total_exposure),
    "cost": View(build_prices, best_total),
}


@cache
def _reference_figures(role: str, difficulty: int) -> tuple[int, ...]:
    """Sorted figures of a fixed set of structures: the scale on which a figure becomes a utility."""
    rng = random.Random(f"team/reference/{role}/{difficulty}")
    view = VIEWS[role]
    return tuple(sorted(view.measure(view.build(rng, difficulty)) for _ in range(NUM_REFERENCE_CASES)))


def figure_utility(role: str, difficulty: int, figure: int) -> int:
    """10 (worse than all reference structures) to 99 (better than all): smaller figures are better."""
    reference = _reference_figures(role, difficulty)
    rank = bisect.bisect_left(reference, figure) + bisect.bisect_right(reference, figure)  # 0 to 2 N
    return GREATEST_UTILITY - (GREATEST_UTILITY - LEAST_UTILITY) * rank // (2 * len(reference))


def _draw_structures(rng: random.Random, role: str, difficulty: int) -> dict[str, Any]:
    """One structure per option, drawn again while its utility repeats another's or nears the favourite's."""
    view = VIEWS[role]
    lead = FAVOURITE_LEAD.get(difficulty, 1)
    structures: dict[str, Any] = {}
    measured: dict[str, int] = {}
    utilities: dict[str, int] = {}
    draws = 0
    for option in OPTIONS[: NUM_OPTIONS[difficulty - 1]]:
        while option not in utilities:
            structure = view.build(rng, difficulty)
            figure = view.measure(structure)
            utility = figure_utility(role, difficulty, figure)
            draws += 1
            if draws > MOST_DRAWS:
                raise RuntimeError(f"no distinct utilities for {role} in {MOST_DRAWS} draws")
            others = utilities.values()
            rivals = [
                other
                for other in others
                if abs(other - utility) < lead and max(other, utility) >= max(others)
            ]
            if utility not in others and not rivals:
                structures[option], measured[option], utilities[option] = structure, figure, utility
    return {"structures": structures, "figures": measured, "utilities": utilities}


def _draw_stakes(rng: random.Random, difficulty: int) -> dict[str, int]:
    """Ordinary stakes for most, critical ones for one specialist (sometimes two)."""
    stakes = {role: rng.randint(*ORDINARY_STAKES) for role in SPECIALISTS}
    num_critical = 2 if rng.random() < TWO_CRITICAL_SHARE[difficulty - 1] else 1
    for role in rng.sample(SPECIALISTS, num_critical):
        stakes[role] = rng.randint(*CRITICAL_STAKES)
    return stakes


def _draw_limits(rng: random.Random, utilities: Mapping[str, list[int]], difficulty: int) -> dict[str, int]:
    """Hard limits under each one's favourite; most forbid nothing, a deadlock forbids everything."""
    num_vetoes = {role: int(rng.random() < VETO_SHARE[difficulty - 1]) for role in SPECIALISTS}
    if rng.random() < DEADLOCK_SHARE:
        num_options = NUM_OPTIONS[difficulty - 1]
        num_vetoes |= dict.fromkeys(find_deadlock(utilities), num_options - 1)
    clear_by = LIMIT_CLEARANCE.get(difficulty, 0)
    return {
        role: draw_limit(rng, utilities[role], num_vetoes[role], clear_by=clear_by) for role in SPECIALISTS
    }


def weigh(facts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The truth that follows from the seats' utilities, stakes and limits. Exact: `weighted` are integers.

    Example: {"weighted": {"A": 4411, "B": 7302}, "total_stakes": 121, "value": {"A": None, "B": 60.3},
              "vetoes": {"A": ["cto"], "B": []}, "best": "B", "average": 60.3, "no_feasible": False}
    """
    options = list(next(iter(facts.values()))["utilities"])
    total = sum(seat["stakes"] for seat in facts.values())
    weighted = {o: sum(seat["stakes"] * seat["utilities"][o] for seat in facts.values()) for o in options}
    vetoes = {
        option: [role for role, seat in facts.items() if seat["utilities"][option] < seat["limit"]]
        for option in options
    }
    feasible = [option for option in options if not vetoes[option]]
    return {
        "weighted": weighted,
        "total_stakes": total,
        "value": {option: None if vetoes[option] else weighted[option] / total for option in options},
        "vetoes": vetoes,
        "best": max(feasible, key=lambda option: weighted[option], default=None),
        "average": sum(weighted[option] for option in feasible) / (total * len(feasible))
        if feasible
        else 0.0,
        "no_feasible": not feasible,
    }


def _is_unique(truth: Mapping[str, Any]) -> bool:
    sums = [truth["weighted"][option] for option, vetoes in truth["vetoes"].items() if not vetoes]
    return truth["no_feasible"] or sums.count(max(sums)) == 1


def generate(split: Split, seed: int, index: int, difficulty: int) -> TeamScenario:
    """One joint case; a pure function of its coordinates."""
    check_coordinates(split, seed, index, difficulty)
    rng = scenario_rng("team", split, seed, index)
    sector = rng.choice(SECTORS)
    facts = {role: _draw_structures(rng, role, difficulty) for role in SPECIALISTS}
    utilities = {role: list(facts[role]["utilities"].values()) for role in SPECIALISTS}
    for _ in range(MOST_DRAWS):
        stakes, limits = _draw_stakes(rng, difficulty), _draw_limits(rng, utilities, difficulty)
        for role in SPECIALISTS:
            facts[role] |= {"stakes": stakes[role], "limit": limits[role]}
        truth = weigh(facts)
        if _is_unique(truth):
            break
    else:
        raise RuntimeError(f"no unique optimum in {MOST_DRAWS} draws")
    return TeamScenario(
        split=split,
        seed=seed,
        index=index,
        difficulty=difficulty,
        sector=sector,
        options=tuple(truth["weighted"]),
        seats={
            role: Seat(brief=_write_brief(sector, ROLES[role].title, facts[role]), facts=facts[role])
            for role in facts
        },
        truth=truth,
    )


def with_seat(scenario: TeamScenario, role: Role, facts: Mapping[str, Any]) -> TeamScenario:
    """The case with one more specialist at the table; what a decision is worth follows from all seats.

    `facts` are the role's utilities (option -> 10 to 99), stakes and limit, and whatever else it knows.

    Raises:
        ValueError: seat taken, not one utility per option, a limit over the own favourite, or a tie for the
            best option: draw the seat again.
    """
    if role.name in scenario.seats:
        raise ValueError(f"seat {role.name!r} is taken")
    if tuple(facts["utilities"]) != scenario.options:
        raise ValueError(f"utilities must be given for {' '.join(scenario.options)}, in this order")
    if max(facts["utilities"].values()) < facts["limit"]:
        raise ValueError(f"limit {facts['limit']} forbids every option")
    seat = Seat(brief=_write_brief(scenario.sector, role.title, facts), facts=facts)
    seats = {**scenario.seats, role.name: seat}
    truth = weigh({name: other.facts for name, other in seats.items()})
    if not _is_unique(truth):
        raise ValueError("two options are best; draw the seat again")
    return replace(scenario, seats=seats, truth=truth)


def _write_brief(sector: str, title: str, facts: Mapping[str, Any]) -> str:
    utilities = " ".join(f"{option} {utility}" for option, utility in facts["utilities"].items())
    return (
        f"{sector.capitalize()} case. {title} seat. Stakes {facts['stakes']}. {utilities}. "
        f"Limit {facts['limit']}."
    )


def own_vetoes(seat: Seat) -> list[str]:
    """The options under the seat's hard limit, in order."""
    return [option for option, utility in seat.facts["utilities"].items() if utility < seat.facts["limit"]]


def favourite(seat: Seat) -> str:
    """The option of the highest utility (never under the seat's own limit)."""
    utilities: dict[str, int] = seat.facts["utilities"]
    return max(utilities, key=utilities.__getitem__)


def decision_value(scenario: TeamScenario, decision: Decision | None) -> float:
    """V in [0, 1]: 1 at the exact optimum, 0 at the average open option, at a veto or without a decision.

    Escalating is worth 1 where every option is vetoed and 0 otherwise.
    """
    truth = scenario.truth
    if decision is None:
        return 0.0
    if truth["no_feasible"] or decision.escalate:
        return float(truth["no_feasible"] and decision.escalate)
    if truth["value"].get(decision.option) is None:
        return 0.0
    if decision.option == truth["best"]:
        return 1.0
    open_sums: list[int] = [
        truth["weighted"][option] for option, value in truth["value"].items() if value is not None
    ]
    above_average: int = truth["weighted"][decision.option] * len(open_sums) - sum(open_sums)
    return max(0.0, above_average / (max(open_sums) * len(open_sums) - sum(open_sums)))

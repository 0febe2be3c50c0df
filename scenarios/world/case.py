"""The company case: K options that each carry an architecture, a work plan, a threat graph and a price list.

Every specialist measures its own structures exactly; a figure becomes a utility by its rank among fixed
reference structures. What is at stake for whom, and what each can still accept, belongs to the case as well.
The team family's seats are views of it (`scenarios.team.case`).
"""

import bisect
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from roles.team import SPECIALISTS
from scenarios.base import Split, check_coordinates, scenario_rng
from scenarios.briefs.sectors import SECTORS
from scenarios.world.architecture import Figures, build_architecture, figures
from scenarios.world.bargaining import draw_limit, find_deadlock
from scenarios.world.prices import best_total, build_prices
from scenarios.world.threats import build_threats, total_exposure
from scenarios.world.work import best_finish, build_work

OPTIONS = "ABCDEFGHIJ"
NUM_OPTIONS = (3, 3, 4, 5, 10, 10, 10, 10, 10, 10)  # by difficulty 1-10
VETO_SHARE = (0.1, 0.12, 0.14, 0.16, 0.72, 0.73, 0.74, 0.75, 0.76, 0.77)  # of specialists with a veto
MOST_VETOES = (1, 1, 1, 1, 5, 5, 5, 5, 5, 5)  # of one specialist
TWO_CRITICAL_SHARE = (0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45)  # of cases with two critical roles
# share of cases whose best option is nobody's favourite; 0: as it comes
COMPROMISE_SHARE = (0, 0, 0, 0, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6)
FAVOURITE_LEAD = {1: 12, 2: 8, 3: 4}  # least lead of a specialist's favourite, by difficulty; 1 above
LIMIT_CLEARANCE = {1: 4, 2: 3, 3: 2}  # distance of a limit from the utilities around it, where there is room
DEADLOCK_SHARE = 0.03  # of cases in which every option is vetoed
ORDINARY_STAKES, CRITICAL_STAKES = (10, 19), (70, 99)
LEAST_UTILITY, GREATEST_UTILITY = 10, 99
NUM_REFERENCE_CASES = 128  # structures per role and difficulty that a figure is ranked among
MOST_DRAWS = 200
GOALS = {
    "cto": "a service that is fast and stays up",
    "coo": "work that is done early",
    "risk": "little loss from threats",
    "cost": "low spending",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CompanyCase:
    """One company before one decision, whole. Tables go role -> option.

    Example: build_case("train", seed=0, index=7, difficulty=2).options == ("A", "B", "C")
    """

    split: Split
    seed: int
    index: int
    difficulty: int
    sector: str
    options: tuple[str, ...]
    structures: Mapping[str, Mapping[str, Any]]  # what each specialist looks at
    figures: Mapping[str, Mapping[str, int]]  # what it measures there; small is good
    utilities: Mapping[str, Mapping[str, int]]  # 10 (worse than all reference structures) to 99
    stakes: Mapping[str, int]  # how much the decision matters to each specialist
    limits: Mapping[str, int]  # the least utility that each can accept

    @property
    def goals(self) -> tuple[str, ...]:
        """What the company wants, what matters most first."""
        by_stakes = sorted(self.stakes, key=lambda role: -self.stakes[role])
        return tuple(GOALS.get(role, f"what {role} stands for") for role in by_stakes)

    @property
    def slo(self) -> int | None:
        """Most that latency (ms) and 3 x downtime (percent) may add up to; None: no limit."""
        return self.bound("cto")

    @property
    def deadline(self) -> int | None:
        """Latest finish of the work, in hours; None: no limit."""
        return self.bound("coo")

    @property
    def appetite(self) -> int | None:
        """Most loss from threats, in k$; None: no limit."""
        return self.bound("risk")

    @property
    def budget(self) -> int | None:
        """Most spending, in k$; None: no limit."""
        return self.bound("cost")

    def bound(self, role: str) -> int | None:
        """A specialist's hard limit in its own unit: it vetoes options with larger figures."""
        return largest_figure(role, self.difficulty, self.limits[role])


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


def largest_figure(role: str, difficulty: int, limit: int) -> int | None:
    """The largest figure whose utility reaches `limit`; None where every figure's does."""
    if limit <= LEAST_UTILITY:
        return None
    above = range(_reference_figures(role, difficulty)[-1] + 2)
    return bisect.bisect_left(above, True, key=lambda f: figure_utility(role, difficulty, f) < limit) - 1


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


def has_one_best(truth: Mapping[str, Any]) -> bool:
    """Whether one open option is worth more than every other, or none is open."""
    sums = [truth["weighted"][option] for option, vetoes in truth["vetoes"].items() if not vetoes]
    return truth["no_feasible"] or sums.count(max(sums)) == 1


def build_case(split: Split, seed: int, index: int, difficulty: int) -> CompanyCase:
    """One company case; a pure function of its coordinates."""
    check_coordinates(split, seed, index, difficulty)
    rng = scenario_rng("team", split, seed, index)
    sector = rng.choice(SECTORS)
    aims = _draw_aims(rng, difficulty)
    for _ in range(MOST_DRAWS):
        seats = {role: _draw_structures(rng, role, difficulty) for role in SPECIALISTS}
        if _draw_terms(rng, seats, difficulty, aims):
            break
    else:
        raise RuntimeError(f"no company case in {MOST_DRAWS} draws")

    def table(key: str) -> dict[str, Any]:
        return {role: seat[key] for role, seat in seats.items()}

    return CompanyCase(
        split=split,
        seed=seed,
        index=index,
        difficulty=difficulty,
        sector=sector,
        options=tuple(OPTIONS[: NUM_OPTIONS[difficulty - 1]]),
        structures=table("structures"),
        figures=table("figures"),
        utilities=table("utilities"),
        stakes=table("stakes"),
        limits=table("limit"),
    )


class _Aims(NamedTuple):
    """What the case is to be; None: as it comes."""

    in_deadlock: bool | None = None  # every option is vetoed
    is_compromise: bool | None = None  # the best option is nobody's favourite


def _draw_aims(rng: random.Random, difficulty: int) -> _Aims:
    share = COMPROMISE_SHARE[difficulty - 1]
    return _Aims(rng.random() < DEADLOCK_SHARE, rng.random() < share) if share else _Aims()


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


def _draw_terms(rng: random.Random, seats: dict[str, dict[str, Any]], difficulty: int, aims: _Aims) -> bool:
    """Add stakes and limits to the seats until one option is best and the aims are met; False if none do."""
    utilities = {role: list(seat["utilities"].values()) for role, seat in seats.items()}
    for _ in range(MOST_DRAWS):
        stakes = _draw_stakes(rng, difficulty)
        limits = _draw_limits(rng, utilities, difficulty, aims.in_deadlock)
        for role, seat in seats.items():
            seat |= {"stakes": stakes[role], "limit": limits[role]}
        truth = weigh(seats)
        if has_one_best(truth) and _meets(aims, truth, seats):
            return True
    return False


def _meets(aims: _Aims, truth: Mapping[str, Any], seats: Mapping[str, Mapping[str, Any]]) -> bool:
    if aims.is_compromise is None or truth["no_feasible"]:
        return aims.in_deadlock in (None, truth["no_feasible"])
    is_favourite = any(
        seat["utilities"][truth["best"]] == max(seat["utilities"].values()) for seat in seats.values()
    )
    return not aims.in_deadlock and aims.is_compromise != is_favourite


def _draw_stakes(rng: random.Random, difficulty: int) -> dict[str, int]:
    """Ordinary stakes for most, critical ones for one specialist (sometimes two)."""
    stakes = {role: rng.randint(*ORDINARY_STAKES) for role in SPECIALISTS}
    num_critical = 2 if rng.random() < TWO_CRITICAL_SHARE[difficulty - 1] else 1
    for role in rng.sample(SPECIALISTS, num_critical):
        stakes[role] = rng.randint(*CRITICAL_STAKES)
    return stakes


def _draw_limits(
    rng: random.Random, utilities: Mapping[str, list[int]], difficulty: int, in_deadlock: bool | None
) -> dict[str, int]:
    """Hard limits under each one's favourite; a deadlock forbids everything (None: drawn here)."""
    most, share = MOST_VETOES[difficulty - 1], VETO_SHARE[difficulty - 1]
    num_vetoes = dict.fromkeys(SPECIALISTS, 0)
    for role in SPECIALISTS:
        if rng.random() < share:
            num_vetoes[role] = rng.randint(1, most) if most > 1 else 1
    if rng.random() < DEADLOCK_SHARE if in_deadlock is None else in_deadlock:
        num_options = NUM_OPTIONS[difficulty - 1]
        num_vetoes |= dict.fromkeys(find_deadlock(utilities), num_options - 1)
    clear_by = LIMIT_CLEARANCE.get(difficulty, 0)
    return {
        role: draw_limit(rng, utilities[role], num_vetoes[role], clear_by=clear_by) for role in SPECIALISTS
    }

"""The team's case as its seats see it: each specialist its own figures only, as utilities.

A seat has its own stakes and hard limit. The team's value of an option is the stakes-weighted mean utility;
a veto makes it worthless. The case itself is drawn in `scenarios.world.case`.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from roles.base import Role
from roles.registry import ROLES
from roles.team import Decision
from scenarios.base import Split
from scenarios.briefs.forms import choose_form
from scenarios.briefs.team import write_seat_brief as write_seat_brief
from scenarios.headroom import blind_baseline, share_of_room
from scenarios.team.conventions import CONVENTIONS, HOUSE, Conventions, ConventionsName
from scenarios.world.case import MOST_DRAWS, CompanyCase, build_case, has_one_best, weigh
from scenarios.world.case import figure_utility as figure_utility


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
    conventions: Conventions = HOUSE  # how its experts play, and what its verdicts hold right

    @property
    def key(self) -> str:
        """ "team/..." of the house, "team-symmetric/..." of other conventions."""
        variant = "" if self.conventions.name == HOUSE.name else f"-{self.conventions.name}"
        return f"{self.family}{variant}/{self.split}/{self.seed}/{self.index}/{self.difficulty}"


def generate(
    split: Split, seed: int, index: int, difficulty: int, conventions: ConventionsName = "house"
) -> TeamScenario:
    """One joint case; a pure function of its coordinates and the conventions' name."""
    return seat_team(build_case(split, seed, index, difficulty), CONVENTIONS[conventions])


def seat_team(case: CompanyCase, conventions: Conventions = HOUSE) -> TeamScenario:
    """The case as the team plays it: one seat per specialist, and what a decision is worth."""
    if conventions.stakes_bands is not None:
        case = _draw_stakes(case, conventions.name, conventions.stakes_bands)
    form = choose_form("team", case.split, case.seed, case.index, case.difficulty)
    facts = {
        role: {
            "structures": case.structures[role],
            "figures": case.figures[role],
            "utilities": case.utilities[role],
            "stakes": case.stakes[role],
            "limit": case.limits[role],
        }
        for role in case.stakes
    }
    return TeamScenario(
        split=case.split,
        seed=case.seed,
        index=case.index,
        difficulty=case.difficulty,
        sector=case.sector,
        options=case.options,
        seats={
            role: Seat(
                brief=write_seat_brief(case.sector, ROLES[role].title, facts[role], form), facts=facts[role]
            )
            for role in facts
        },
        truth=weigh(facts),
        conventions=conventions,
    )


def _draw_stakes(case: CompanyCase, name: str, bands: tuple[tuple[int, int], ...]) -> CompanyCase:
    """The case with every specialist's stakes from another band, in random order, and one best option."""
    rng = random.Random(f"stakes/{name}/{case.split}/{case.seed}/{case.index}/{case.difficulty}")
    for _ in range(MOST_DRAWS):
        order = rng.sample(bands, len(bands))
        stakes = {role: rng.randint(*band) for role, band in zip(case.stakes, order, strict=True)}
        facts = {
            role: {"utilities": case.utilities[role], "stakes": stakes[role], "limit": case.limits[role]}
            for role in stakes
        }
        if has_one_best(weigh(facts)):
            return replace(case, stakes=stakes)
    raise RuntimeError(f"no stakes with one best option in {MOST_DRAWS} draws")


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
    form = choose_form("team", scenario.split, scenario.seed, scenario.index, scenario.difficulty)
    seat = Seat(brief=write_seat_brief(scenario.sector, role.title, facts, form), facts=facts)
    seats = {**scenario.seats, role.name: seat}
    truth = weigh({name: other.facts for name, other in seats.items()})
    if not has_one_best(truth):
        raise ValueError("two options are best; draw the seat again")
    return replace(scenario, seats=seats, truth=truth)


def own_vetoes(seat: Seat) -> list[str]:
    """The options under the seat's hard limit, in order."""
    return [option for option, utility in seat.facts["utilities"].items() if utility < seat.facts["limit"]]


def favourite(seat: Seat) -> str:
    """The option of the highest utility (never under the seat's own limit)."""
    utilities: dict[str, int] = seat.facts["utilities"]
    return max(utilities, key=utilities.__getitem__)


def decision_value(scenario: TeamScenario, decision: Decision | None) -> float:
    """V in [0, 1]: 1 at the exact optimum, 0 at a blind choice of open options, a veto or no decision.

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
    sums = [truth["weighted"][option] for option, value in truth["value"].items() if value is not None]
    return share_of_room(
        truth["weighted"][decision.option], max(sums), blind_baseline(sums, scenario.difficulty)
    )

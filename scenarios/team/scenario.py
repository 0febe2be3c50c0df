"""The team's case: who sees what, and what the verifier alone knows."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from scenarios.base import Split, check_coordinates, scenario_rng
from scenarios.company.case import VETO_FROM, generate_case, veto_options
from scenarios.company.optimum import Optimum, blind_worth, find_optimum, least_cost
from scenarios.company.records import CompanyCase, Part
from scenarios.team.listed_seat import list_parts
from scenarios.team.playable import PublicCase, Seat

FAMILY = "team"
VETOED_SHARE = 0.045  # of the cases from VETO_FROM on: no option can be run, whatever is bought
# of the cases in which every option needs a part, by difficulty: the budget does not pay for any
HOPELESS_SHARE = (0.3, 0.3, 0.08, 0.08, 0.08, 0.08, 0.08, 0.08, 0.08, 0.08)
MAX_OFFERS_PER_OPTION = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamScenario:
    """One joint case. `truth` never leaves the verifier.

    Example: generate("train", seed=0, index=7, difficulty=2).key == "team/train/0/7/2"
    """

    family: str = FAMILY
    case: CompanyCase  # its `parts` are hidden, too
    seats: Mapping[str, Seat]  # by specialist, in speaking order
    offers_per_option: int  # most offers of one seat on one option
    truth: Mapping[str, Any]  # optimum (None where nothing can be run), blind: k$ of a blind feasible plan

    @property
    def split(self) -> Split:
        return self.case.split

    @property
    def seed(self) -> int:
        return self.case.seed

    @property
    def index(self) -> int:
        return self.case.index

    @property
    def difficulty(self) -> int:
        return self.case.difficulty

    @property
    def sector(self) -> str:
        return self.case.sector

    @property
    def options(self) -> tuple[str, ...]:
        return tuple(self.case.options)

    @property
    def public(self) -> PublicCase:
        """Return what everybody at the table knows."""
        return PublicCase(
            sector=self.case.sector,
            situation=self.case.situation,
            options=self.case.options,
            budget=self.case.budget,
            seats=tuple(self.seats),
            offers_per_option=self.offers_per_option,
            wording=self.case.wording,
        )

    @property
    def optimum(self) -> Optimum | None:
        """The best plan; None where no option can be run within the budget."""
        return self.truth["optimum"]  # type: ignore[no-any-return]

    @property
    def key(self) -> str:
        """Every coordinate that changes the case: offers per option are named where they are not one."""
        variant = "" if self.offers_per_option == 1 else f"-{self.offers_per_option}"
        return f"{self.family}{variant}/{self.split}/{self.seed}/{self.index}/{self.difficulty}"

    def parts_of(self, seat: str, option: str) -> tuple[Part, ...]:
        """Every part that the seat can propose on the option, () first."""
        return self.case.parts[seat][option]


def generate(
    split: Split, seed: int, index: int, difficulty: int, offers_per_option: int = 1
) -> TeamScenario:
    """One joint case; a pure function of its coordinates.

    Raises:
        ValueError: a coordinate out of range.
    """
    check_coordinates(split, seed, index, difficulty)
    if not 1 <= offers_per_option <= MAX_OFFERS_PER_OPTION:
        raise ValueError(f"offers_per_option must be 1 to {MAX_OFFERS_PER_OPTION}, got {offers_per_option}")
    case = generate_case(split, seed, index, difficulty)
    rng = scenario_rng(f"{FAMILY}-budget", split, seed, index, difficulty)
    if difficulty >= VETO_FROM and rng.random() < VETOED_SHARE:
        return seat_team(veto_options(case, rng), offers_per_option)
    if rng.random() < HOPELESS_SHARE[difficulty - 1]:
        needed = least_cost(case) or 0  # k$ of the cheapest plan that keeps all limits
        if needed > 0:
            case = replace(case, budget=needed - rng.randint(1, max(1, needed // 4)))
    return seat_team(case, offers_per_option)


def seat_team(case: CompanyCase, offers_per_option: int = 1) -> TeamScenario:
    """The case as the team plays it: one seat per specialist. Its optimum is computed here, once."""
    optimum = find_optimum(case)
    seats = {
        role: Seat(
            role=role,
            facts={
                "structures": case.structures[role],
                "rates": case.rates[role],
                "limits": case.limits[role],
            },
        )
        for role in case.parts
    }
    return TeamScenario(
        case=case,
        seats=seats,
        offers_per_option=offers_per_option,
        truth={"optimum": optimum, "blind": None if optimum is None else blind_worth(case)},
    )


def with_seat(scenario: TeamScenario, role: str, facts: Mapping[str, Any]) -> TeamScenario:
    """The case with one more specialist, whose parts are listed (see `scenarios.team.listed_seat`).

    The optimum follows from all seats.

    Raises:
        ValueError: the seat is taken, or its facts name an option that the case does not have.
    """
    if role in scenario.seats:
        raise ValueError(f"seat {role!r} is taken")
    seat = Seat(role=role, facts=facts)
    parts = {option: list_parts(seat, option) for option in scenario.options}
    named = {*facts.get("upgrades", {}), *facts.get("needs", {}), *facts.get("veto", ())}
    if not named <= set(scenario.options):
        raise ValueError(f"options are {' '.join(scenario.options)}, got {' '.join(sorted(named))}")
    case = replace(scenario.case, parts={**scenario.case.parts, role: parts})
    optimum = find_optimum(case)
    truth = {"optimum": optimum, "blind": None if optimum is None else blind_worth(case)}
    return replace(scenario, case=case, seats={**scenario.seats, role: seat}, truth=truth)

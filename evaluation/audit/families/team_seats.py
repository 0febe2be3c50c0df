"""Draws what one seat of a team case reads: its brief, reports of the others, the decision it votes on.

The cases are the team's. Reports are those of experts (of mixed practices; of the one that
flags by stakes where value counts), some of them silent; half of the
decisions put to the vote are to be objected to, for which the seat's limit may be raised.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from roles.registry import ROLES
from roles.team import RECONCILER, SPECIALISTS, Decision, SpecialistReport
from scenarios.base import Scenario, Split
from scenarios.team import Seat, TeamScenario, decision_brief, generate, sample_practice, vote_brief
from scenarios.team.case import favourite, figure_utility, own_vetoes, write_seat_brief
from scenarios.team.certify import RECHECKS
from scenarios.team.practices import best_report

SeatKind = Literal["report", "decision", "vote", "value"]

SILENT_SHARE = 0.1  # of specialists without a report
UNDECIDED_SHARE = 0.1  # of votes on no decision at all


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatScenario(Scenario):
    """One seat of a team case with everything that it reads."""

    case: TeamScenario  # without structures; the vote's own seat may have another limit
    reports: Mapping[str, SpecialistReport | None]  # empty before they are written
    decision: Decision | None  # what is voted on


@lru_cache(maxsize=128)
def _full_case(split: Split, seed: int, index: int, difficulty: int) -> TeamScenario:
    return generate(split, seed, index, difficulty)


@lru_cache(maxsize=32_768)
def _light_case(split: Split, seed: int, index: int, difficulty: int) -> TeamScenario:
    case = _full_case(split, seed, index, difficulty)
    seats = {
        role: replace(seat, facts={key: seat.facts[key] for key in ("utilities", "stakes", "limit")})
        for role, seat in case.seats.items()
    }
    return replace(case, seats=seats)


def case_of(scenario: Scenario) -> SeatScenario:
    """Return the seat's view of a scenario that one of these families made.

    Raises:
        TypeError: any other scenario.
    """
    if not isinstance(scenario, SeatScenario):
        raise TypeError(f"{scenario.key} is no seat of a team case")
    return scenario


@lru_cache(maxsize=4096)
def recheck_utilities(split: Split, seed: int, index: int, difficulty: int, role: str) -> Mapping[str, int]:
    """Return the seat's utilities once more, from its structures by the second methods of `team_certify`."""
    structures = _full_case(split, seed, index, difficulty).seats[role].facts["structures"]
    return {
        option: figure_utility(role, difficulty, RECHECKS[role](structure))
        for option, structure in structures.items()
    }


def _draw_reports(
    case: TeamScenario, kind: SeatKind, rng: random.Random
) -> dict[str, SpecialistReport | None]:
    reports: dict[str, SpecialistReport | None] = {}
    for role, seat in case.seats.items():
        practice = "stakes" if kind == "value" else sample_practice(rng, "report")
        reports[role] = None if rng.random() < SILENT_SHARE else best_report(seat, practice)
    return reports


def _to_object(case: TeamScenario, role: str, rng: random.Random) -> tuple[TeamScenario, Decision]:
    """Return a decision that the seat must object to; its limit is raised over that option."""
    seat = case.seats[role]
    utilities = seat.facts["utilities"]
    refused = rng.choice([option for option in case.options if option != favourite(seat)])
    next_up = min(utility for utility in utilities.values() if utility > utilities[refused])
    limit = rng.randint(utilities[refused] + 1, next_up)
    facts = {**seat.facts, "limit": limit}
    raised = Seat(brief=write_seat_brief(case.sector, ROLES[role].title, facts), facts=facts)
    return replace(case, seats={**case.seats, role: raised}), Decision(option=refused, escalate=False)


def _to_accept(case: TeamScenario, role: str, rng: random.Random) -> Decision:
    vetoes = own_vetoes(case.seats[role])
    option = rng.choice([option for option in case.options if option not in vetoes])
    return Decision(option=option, escalate=False)


def seat_generator(kind: SeatKind) -> Callable[..., Scenario]:
    """`generate(split, seed, index, difficulty)` of the family `team-<kind>`."""

    def generate_seat(split: Split, seed: int, index: int, difficulty: int) -> Scenario:
        case = _light_case(split, seed, index, difficulty)
        rng = random.Random(f"audit/{kind}/{case.key}")
        role = rng.choice(SPECIALISTS) if kind in ("report", "vote") else RECONCILER
        reports = _draw_reports(case, kind, rng) if role == RECONCILER else {}
        decision = None
        if kind == "vote" and rng.random() >= UNDECIDED_SHARE:
            if rng.random() < (0.5 - UNDECIDED_SHARE) / (1 - UNDECIDED_SHARE):
                case, decision = _to_object(case, role, rng)
            else:
                decision = _to_accept(case, role, rng)
        brief = decision_brief(case.options, reports) if role == RECONCILER else case.seats[role].brief
        if kind == "vote":
            brief += "\n" + vote_brief(decision)
        return SeatScenario(
            family=f"team-{kind}",
            split=split,
            seed=seed,
            index=index,
            difficulty=difficulty,
            role=role,
            brief=brief,
            facts={"options": list(case.options)},
            truth=case.truth,
            optimal_tool_calls=0,
            case=case,
            reports=reports,
            decision=decision,
        )

    return generate_seat

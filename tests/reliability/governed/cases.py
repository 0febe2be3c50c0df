"""Governed episodes of scripted experts on generated cases, before a reviewer that errs at a stated rate."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from roles.registry import ROLES
from scenarios.team import PlanGame, PlayableCase, TeamScenario, generate
from simulator.agents.scripted_policies import oracle_team, remember_cases
from simulator.chat import PlainChat
from simulator.engines.base import Engine, Sampling
from simulator.engines.scripted import ScriptedEngine
from simulator.governance.outcomes import SimulatedOutcomes
from simulator.governance.reviewers import SimulatedReviewer, score_by_worth
from simulator.graph.runner import MAX_TURNS
from simulator.graph.seating import Seating

KEY = b"k" * 32
CHAT = PlainChat()
DIFFICULTY = 3  # three options


def draw_cases(count: int) -> list[TeamScenario]:
    return [_draw_case(index) for index in range(count)]


@cache
def _draw_case(index: int) -> TeamScenario:
    return generate("train", 0, index, DIFFICULTY)


def make_seating(
    scenarios: Sequence[TeamScenario],
    *,
    stream: str = "g",
    engine: Engine | None = None,
    known: list[PlayableCase] | None = None,
) -> Seating:
    """Experts at every seat; another `engine` finds cases that arise from re-plans in `known`."""
    known = list(scenarios) if known is None else known
    experts = oracle_team(known, report_habit="measured", funding_habit="exact")
    return Seating(
        team={role: role for role in ROLES},
        engine=engine or ScriptedEngine(CHAT, seeded=experts),
        chat=CHAT,
        sampling=Sampling(max_completion_tokens=2_000),
        stream=stream,
        max_turns=MAX_TURNS,
        roles=ROLES,
        make_game=remember_cases(known, lambda case: PlanGame(case, "short")),
    )


def expert_reviewer(**options: Any) -> SimulatedReviewer:
    """A reviewer that goes by the checked figures that it is shown."""
    return SimulatedReviewer(score_by_worth, **options)


def worlds(**options: Any) -> Callable[[TeamScenario], SimulatedOutcomes]:
    return lambda scenario: SimulatedOutcomes(scenario, **options)

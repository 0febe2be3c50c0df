"""Governed episodes of scripted experts on generated cases, before a reviewer that errs at a stated rate."""

from collections.abc import Callable, Sequence
from typing import Any

from roles.registry import ROLES
from roles.team import Decision
from scenarios.team import TeamScenario, decision_value, generate
from simulator.agents.scripted_policies import oracle_team
from simulator.chat_plain import PlainChat
from simulator.engines.base import Engine, Sampling
from simulator.engines.scripted import ScriptedEngine
from simulator.governance.gate.request_form import ReviewRequest
from simulator.governance.gate.reviewers import SimulatedReviewer
from simulator.governance.outcomes import SimulatedOutcomes
from simulator.graph.seating import Seating

KEY = b"k" * 32
CHAT = PlainChat()


def draw_cases(count: int) -> list[TeamScenario]:
    return [generate("train", 0, index, 1 + index % 2) for index in range(count)]


def make_seating(
    scenarios: Sequence[TeamScenario], *, stream: str = "g", engine: Engine | None = None
) -> Seating:
    return Seating(
        team={role: role for role in ROLES},
        engine=engine
        or ScriptedEngine(
            CHAT, seeded=oracle_team(scenarios, report_practice="stakes", decision_practice="priority")
        ),
        chat=CHAT,
        sampling=Sampling(max_completion_tokens=300),
        stream=stream,
        max_turns=4,
        roles=ROLES,
    )


def expert_reviewer(scenarios: Sequence[TeamScenario], **options: Any) -> SimulatedReviewer:
    """A reviewer that knows the truth."""
    by_key = {scenario.key: scenario for scenario in scenarios}

    def score(request: ReviewRequest, option: str) -> float:
        decision = Decision(option=option, escalate=option == "none")
        return decision_value(by_key[request.proposal.case], decision)

    return SimulatedReviewer(score, **options)


def worlds(**options: Any) -> Callable[[TeamScenario], SimulatedOutcomes]:
    return lambda scenario: SimulatedOutcomes(scenario, **options)

"""Plays a solver on sealed test tasks, sampled and greedily, and scores it."""

import asyncio
import statistics
from collections.abc import Callable, Sequence

from evaluation.scoring.scores import RoleScores
from roles.base import Role
from scenarios.base import Family, Scenario
from scenarios.tasks.splits import SealKey, unseal_test
from simulator.agents.agent_kinds import AgentKind
from simulator.agents.solo import SoloEpisode, play_solos
from simulator.chat import Chat
from simulator.engines.base import Engine, Sampling

BLOCK = 100  # tasks that are played together


def score_solver(
    stage: str,
    family: Family,
    role: Role,
    draw: Callable[[SealKey], list[Scenario]],
    *,
    engine: Engine,
    chat: Chat,
    max_turns: int,
    max_completion_tokens: int,
    max_failed_calls: int | None = None,
    kind: AgentKind = "react",
) -> RoleScores:
    """Play the tasks that `draw` gives for the key, with the policy named like the role."""
    with unseal_test() as key:
        scenarios = draw(key)

    def play(temperature: float) -> list[SoloEpisode]:
        episodes = []
        for start in range(0, len(scenarios), BLOCK):
            plays = play_solos(
                scenarios[start : start + BLOCK],
                policy=role.name,
                engine=engine,
                chat=chat,
                sampling=Sampling(temperature=temperature, max_completion_tokens=max_completion_tokens),
                stream=f"evaluate/{stage}/{temperature}/{start}",
                max_turns=max_turns,
                max_failed_calls=max_failed_calls,
                families={family.name: family},
                roles={role.name: role},
                kind=kind,
            )
            episodes += asyncio.run(plays)
        return episodes

    return _sum_up(role.name, stage, play(1.0), play(0.0))


def _sum_up(
    role: str, stage: str, sampled: Sequence[SoloEpisode], greedy: Sequence[SoloEpisode]
) -> RoleScores:
    return RoleScores(
        role=role,
        stage=stage,
        sampled=tuple(episode.verdict.reward for episode in sampled),
        greedy=tuple(episode.verdict.reward for episode in greedy),
        sampled_exact=tuple(episode.verdict.exact for episode in sampled),
        greedy_exact=tuple(episode.verdict.exact for episode in greedy),
        sampled_feasible=tuple(episode.verdict.feasible for episode in sampled),
        greedy_feasible=tuple(episode.verdict.feasible for episode in greedy),
        num_tool_failures=sum(
            episode.trajectory.num_tool_calls - episode.trajectory.num_valid_tool_calls for episode in sampled
        ),
        mean_tokens=statistics.fmean(sum(episode.trajectory.loss_mask) for episode in sampled),
    )

"""Plays sealed scenarios of roles, teams and solvers, sampled and greedy, into the play table.

Greedy plays are of the same scenarios. Every play is kept as an outcome (`evaluation/scoring/outcomes.py`),
block by block, so that a killed evaluation goes on where it was.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from evaluation.scoring.outcomes import (
    BLOCK_SIZE,
    REPEATS_FOLDER,
    TEAM,
    OutcomeFile,
    RoleOutcome,
    StagePlays,
    TeamOutcome,
    complete_files,
    describe_episode,
    describe_solo,
    outcome_path,
)
from roles.base import Role
from roles.registry import ROLES
from scenarios.base import Family, Scenario
from scenarios.tasks.imported import SealKey, unseal_test
from scenarios.team import TeamScenario
from simulator.agents.agent_kinds import AgentKind
from simulator.agents.solo import play_solos
from simulator.chat import Chat
from simulator.engines.base import Engine, Sampling
from simulator.game import MakeGame
from simulator.graph.concurrency import run_all
from simulator.graph.runner import play_episodes
from simulator.graph.seating import list_roles
from simulator.records import Episode
from simulator.reward import TeamRewardWeights, score_episode

# (scenarios, temperature, place of the first one, name of the stream of chance) -> their outcomes
PlayPart = Callable[[Sequence[Any], float, int, str], Coroutine[Any, Any, Sequence[Any]]]


def play_stage(
    owner: str,
    stage: str,
    scenarios: Sequence[Any],
    play: PlayPart,
    *,
    folder: Path,
    temperature: float = 1.0,
    with_greedy: bool = True,
    block_size: int = BLOCK_SIZE,
    num_tries: int = 1,
    num_tried: int = 0,
) -> StagePlays:
    """Play all scenarios at `temperature`, and greedily; the first `num_tried` are sampled `num_tries` times.

    A scenario's sampled and greedy plays are made at the same time, so that the engine computes their equal
    prompts once; so are its further tries. `block_size`: plays of a team, or scenarios of a role, made
    together. Plays that `folder` already holds are not made again.

    Raises:
        ValueError: an episode failed; a score over fewer cases would not be the same measure.
        UserError: the folder holds plays of other scenarios, or damaged ones.
    """
    kind: Any = TeamOutcome if owner == TEAM else RoleOutcome

    def complete(ways: Mapping[Path, tuple[float, str]], cases: Sequence[Any]) -> list[list[Any]]:
        """All plays of the cases in every way: file -> temperature and stream."""

        def play_block(start: int, end: int) -> list[Sequence[Any]]:
            part = cases[start:end]
            return asyncio.run(run_all(play(part, heat, start, stream) for heat, stream in ways.values()))

        return complete_files(
            [OutcomeFile(path, kind) for path in ways],
            [scenario.key for scenario in cases],
            play_block,
            block_size=max(1, block_size // len(ways)) if owner == TEAM else block_size,
        )

    stream = f"evaluate/{stage}"
    judged = {outcome_path(folder, stage, owner, "sampled"): (temperature, stream)}
    if with_greedy:
        judged[outcome_path(folder, stage, owner, "greedy")] = (0.0, stream)
    further = {
        folder / REPEATS_FOLDER / f"{stage}-{owner}.{number}.jsonl": (
            temperature,
            f"{stream}/repeat-{number}",
        )
        for number in range(1, num_tries)
    }
    sampled, *greedy = complete(judged, scenarios)
    repeats = complete(further, scenarios[:num_tried]) if further else []
    return StagePlays(
        owner=owner,
        stage=stage,
        sampled=sampled,
        greedy=greedy[0] if greedy else (),
        repeats=tuple(repeats),
    )


def solo_player(
    role: str,
    families: Mapping[str, Family],
    *,
    engine: Engine,
    chat: Chat,
    max_turns: int,
    max_completion_tokens: int,
    max_failed_calls: int | None = None,
    kind: AgentKind = "react",
    roles: Mapping[str, Role] = ROLES,
) -> PlayPart:
    """Return how a role plays its own family, with the policy named like the role."""

    async def play(
        part: Sequence[Any], temperature: float, first_place: int, stream: str
    ) -> list[RoleOutcome]:
        plays = await play_solos(
            part,
            policy=role,
            engine=engine,
            chat=chat,
            sampling=Sampling(temperature=temperature, max_completion_tokens=max_completion_tokens),
            stream=f"{stream}/{temperature}",
            first_place=first_place,
            max_turns=max_turns,
            max_failed_calls=max_failed_calls,
            kind=kind,
            families=families,
            roles=roles,
        )
        return [describe_solo(episode) for episode in plays]

    return play


def team_player(
    *,
    engine: Engine,
    chat: Chat,
    weights: TeamRewardWeights,
    max_completion_tokens: int,
    make_game: MakeGame,
    rounds: int = 1,
) -> PlayPart:
    """Return how a team plays joint cases, with the policies named like the roles."""

    async def play(
        part: Sequence[Any], temperature: float, first_place: int, stream: str
    ) -> list[TeamOutcome]:
        episodes = await play_episodes(
            part,
            {role: role for scenario in part for role in list_roles(scenario)},
            engine,
            chat,
            Sampling(temperature=temperature, max_completion_tokens=max_completion_tokens),
            rounds=rounds,
            concurrency=len(part),
            stream=f"{stream}/{temperature}",
            first_place=first_place,
            make_game=make_game,
        )
        return score_all(part, episodes, weights)

    return play


def draw_sealed(draw: Callable[[SealKey], list[Scenario]]) -> list[Scenario]:
    """Return the test tasks that `draw` gives for the key of their seal."""
    with unseal_test() as key:
        return draw(key)


def score_all(
    scenarios: Sequence[TeamScenario], episodes: Sequence[Episode], weights: TeamRewardWeights
) -> list[TeamOutcome]:
    """Return the outcome of every episode."""
    return [
        describe_episode(scenario, episode, score_episode(scenario, episode, weights))
        for scenario, episode in zip(scenarios, episodes, strict=True)
    ]

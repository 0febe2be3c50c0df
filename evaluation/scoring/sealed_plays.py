"""Plays sealed scenarios of roles, teams and solvers, sampled and greedy, into the play table.

Greedy plays are of the same scenarios. Every play is kept as an outcome (`evaluation/scoring/outcomes.py`),
block by block, so that a killed evaluation goes on where it was.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from evaluation.scoring.outcomes import (
    BLOCK_SIZE,
    REPEATS_FOLDER,
    TEAM,
    Mode,
    OutcomeFile,
    RoleOutcome,
    StagePlays,
    TeamOutcome,
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
from simulator.graph.runner import play_team
from simulator.records import Episode
from simulator.reward import TeamRewardWeights, score_episode

# (scenarios, temperature, place of the first one, name of the stream of chance) -> their outcomes
PlayPart = Callable[[Sequence[Any], float, int, str], Sequence[Any]]


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

    Plays that `folder` already holds are not made again.

    Raises:
        ValueError: an episode failed; a score over fewer cases would not be the same measure.
        UserError: the folder holds plays of other scenarios, or damaged ones.
    """
    stream = f"evaluate/{stage}"
    kind: Any = TeamOutcome if owner == TEAM else RoleOutcome

    def complete(path: Path, cases: Sequence[Any], temperature: float, stream: str) -> list[Any]:
        def play_block(start: int, end: int) -> Sequence[Any]:
            return play(cases[start:end], temperature, start, stream)

        return OutcomeFile(path, kind).complete(
            [scenario.key for scenario in cases], play_block, block_size=block_size
        )

    def complete_all(mode: Mode, temperature: float) -> list[Any]:
        return complete(outcome_path(folder, stage, owner, mode), scenarios, temperature, stream)

    return StagePlays(
        owner=owner,
        stage=stage,
        sampled=complete_all("sampled", temperature),
        greedy=complete_all("greedy", 0.0) if with_greedy else (),
        repeats=tuple(
            complete(
                folder / REPEATS_FOLDER / f"{stage}-{owner}.{number}.jsonl",
                scenarios[:num_tried],
                temperature,
                f"{stream}/repeat-{number}",
            )
            for number in range(1, num_tries)
        ),
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

    def play(part: Sequence[Any], temperature: float, first_place: int, stream: str) -> list[RoleOutcome]:
        plays = play_solos(
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
        return [describe_solo(episode) for episode in asyncio.run(plays)]

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

    def play(part: Sequence[Any], temperature: float, first_place: int, stream: str) -> list[TeamOutcome]:
        episodes = play_team(
            part,
            engine=engine,
            chat=chat,
            temperature=temperature,
            max_completion_tokens=max_completion_tokens,
            stream=stream,
            make_game=make_game,
            rounds=rounds,
            first_place=first_place,
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

"""Plays sealed scenarios and scores them: trained roles and teams, sampled and greedy, and solvers of tasks.

Greedy twins play the same scenarios. Every play is kept as an outcome first
(`evaluation/scoring/outcomes.py`), block by block, so that a killed evaluation goes on where it was; scores
follow from outcomes alone.
"""

import asyncio
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from evaluation.scoring.outcomes import (
    Mode,
    OutcomeFile,
    RoleOutcome,
    TeamOutcome,
    describe_episode,
    describe_solo,
)
from evaluation.scoring.scores import RoleScores, TeamScores
from roles.base import Role
from scenarios.base import Family, Scenario
from scenarios.registry import families
from scenarios.tasks.imported import SealKey, unseal_test
from scenarios.team import Style, TeamScenario
from simulator.agents.agent_kinds import AgentKind
from simulator.agents.solo import play_solos
from simulator.chat import Chat
from simulator.engines.base import Engine, Sampling
from simulator.game import MakeGame
from simulator.graph.runner import play_team
from simulator.records import Episode
from simulator.reward import TeamRewardWeights, TeamVerdict, score_episode

REPEATS_FOLDER = "repeats"
# (cases, temperature, place of the first one, name of the stream of chance) -> scored episodes
PlayPart = Callable[[Sequence[TeamScenario], float, int, str], Sequence[tuple[Episode, TeamVerdict]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """Numbers of cases and of sampled plays of each.

    Example: Repeats(num_tries=4, num_cases=100)
    """

    num_tries: int  # plays of each, the first one included
    num_cases: int


NO_REPEATS = Repeats(num_tries=1, num_cases=0)


def outcome_path(folder: Path, stage: str, owner: str, mode: Mode) -> Path:
    """Return the file of the outcomes of a role, or of "team"."""
    return folder / f"{stage}-{owner}.{mode}.jsonl"


def _temperature_of(mode: Mode, sampled: float) -> float:
    return sampled if mode == "sampled" else 0.0


def score_role(
    role: str,
    stage: str,
    scenarios: Sequence[Scenario],
    *,
    engine: Engine,
    chat: Chat,
    max_turns: int,
    max_completion_tokens: int,
    folder: Path,
    style: Style,
    max_failed_calls: int | None = None,
    kind: AgentKind = "react",
    temperature: float = 1.0,
    with_greedy: bool = True,
    block_size: int,
) -> RoleScores:
    """Play a role's own family at `temperature`, and greedily, with the policy named like the role.

    Outcomes that `folder` already holds are not played again.

    Raises:
        UserError: the folder holds outcomes of other scenarios, or damaged ones.
    """
    keys = [scenario.key for scenario in scenarios]

    def play(mode: Mode) -> list[RoleOutcome]:
        sampling = Sampling(
            temperature=_temperature_of(mode, temperature), max_completion_tokens=max_completion_tokens
        )

        def play_block(start: int, end: int) -> list[RoleOutcome]:
            plays = play_solos(
                scenarios[start:end],
                policy=role,
                engine=engine,
                chat=chat,
                sampling=sampling,
                stream=f"evaluate/{stage}/{sampling.temperature}",
                first_place=start,
                max_turns=max_turns,
                max_failed_calls=max_failed_calls,
                kind=kind,
                families=families(style),
            )
            return [describe_solo(episode) for episode in asyncio.run(plays)]

        file = OutcomeFile(outcome_path(folder, stage, role, mode), RoleOutcome)
        return file.complete(keys, play_block, block_size=block_size)

    return sum_up_role(role, stage, play("sampled"), play("greedy") if with_greedy else ())


def sum_up_role(
    role: str, stage: str, sampled: Sequence[RoleOutcome], greedy: Sequence[RoleOutcome]
) -> RoleScores:
    """Return the scores of a role's outcomes."""
    return RoleScores(
        role=role,
        stage=stage,
        sampled=tuple(outcome.reward for outcome in sampled),
        greedy=tuple(outcome.reward for outcome in greedy),
        sampled_exact=tuple(outcome.exact for outcome in sampled),
        greedy_exact=tuple(outcome.exact for outcome in greedy),
        sampled_feasible=tuple(outcome.feasible for outcome in sampled),
        greedy_feasible=tuple(outcome.feasible for outcome in greedy),
        num_tool_failures=sum(outcome.failed_calls for outcome in sampled),
        mean_tokens=statistics.fmean(outcome.tokens for outcome in sampled),
    )


def score_team(
    stage: str,
    scenarios: Sequence[TeamScenario],
    *,
    engine: Engine,
    chat: Chat,
    weights: TeamRewardWeights,
    max_completion_tokens: int,
    folder: Path,
    make_game: MakeGame,
    rounds: int = 1,
    repeats: Repeats = NO_REPEATS,
    temperature: float = 1.0,
    with_greedy: bool = True,
    block_size: int,
) -> TeamScores:
    """Play the team's cases at `temperature`, and greedily, and score them; some are played again and again.

    Outcomes that `folder` already holds are not played again.

    Raises:
        ValueError: an episode failed; a score over fewer cases would not be the same measure.
        UserError: the folder holds outcomes of other scenarios, or damaged ones.
    """

    def play(
        part: Sequence[TeamScenario], temperature: float, first_place: int, stream: str
    ) -> list[tuple[Episode, TeamVerdict]]:
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

    return score_plays(
        stage,
        scenarios,
        play,
        folder=folder,
        repeats=repeats,
        temperature=temperature,
        with_greedy=with_greedy,
        block_size=block_size,
    )


def score_all(
    scenarios: Sequence[TeamScenario], episodes: Sequence[Episode], weights: TeamRewardWeights
) -> list[tuple[Episode, TeamVerdict]]:
    """Every episode with its verdict."""
    return [
        (episode, score_episode(scenario, episode, weights))
        for scenario, episode in zip(scenarios, episodes, strict=True)
    ]


def score_plays(
    stage: str,
    scenarios: Sequence[TeamScenario],
    play: PlayPart,
    *,
    folder: Path,
    repeats: Repeats = NO_REPEATS,
    temperature: float = 1.0,
    with_greedy: bool = True,
    block_size: int,
) -> TeamScores:
    """Scores of any way to play: `play(part of the scenarios, temperature, place of its first one, stream)`.

    Raises:
        ValueError, UserError: as score_team.
    """

    stream = f"evaluate/{stage}"

    def complete(cases: Sequence[TeamScenario], mode: Mode, path: Path, stream: str) -> list[TeamOutcome]:
        def play_block(start: int, end: int) -> list[TeamOutcome]:
            part = cases[start:end]
            played = play(part, _temperature_of(mode, temperature), start, stream)
            return [
                describe_episode(scenario, episode, verdict)
                for scenario, (episode, verdict) in zip(part, played, strict=True)
            ]

        keys = [scenario.key for scenario in cases]
        return OutcomeFile(path, TeamOutcome).complete(keys, play_block, block_size=block_size)

    def complete_all(mode: Mode) -> list[TeamOutcome]:
        return complete(scenarios, mode, outcome_path(folder, stage, "team", mode), stream)

    sampled, greedy = complete_all("sampled"), complete_all("greedy") if with_greedy else []
    further = [
        complete(
            scenarios[: repeats.num_cases],
            "sampled",
            folder / REPEATS_FOLDER / f"{stage}-team.{number}.jsonl",
            f"{stream}/repeat-{number}",
        )
        for number in range(1, repeats.num_tries)
    ]
    return sum_up_team(stage, sampled, greedy, further)


def sum_up_team(
    stage: str,
    sampled: Sequence[TeamOutcome],
    greedy: Sequence[TeamOutcome],
    repeats: Sequence[Sequence[TeamOutcome]] = (),
) -> TeamScores:
    """Return the scores of a team's outcomes; `repeats`: further plays of the first cases."""
    return TeamScores(
        stage=stage,
        sampled=tuple(outcome.reward for outcome in sampled),
        greedy=tuple(outcome.reward for outcome in greedy),
        value=tuple(outcome.value for outcome in sampled),
        consensus=tuple(outcome.consensus for outcome in sampled),
        unresolved=tuple(outcome.unresolved for outcome in sampled),
        escalation=tuple(outcome.escalation for outcome in sampled),
        agreement=tuple(outcome.agreement for outcome in sampled),
        repeated_value=tuple(tuple(outcome.value for outcome in one) for one in repeats),
        best_option=_all_known([outcome.best_option for outcome in sampled]),
        hidden=_all_known([outcome.hidden for outcome in sampled]),
    )


def _all_known(flags: Sequence[bool | None]) -> tuple[bool, ...]:
    """Return the flags; () where an older version stored any play without its own."""
    return tuple(flag for flag in flags if flag is not None) if None not in flags else ()


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

    def play(temperature: float) -> list[RoleOutcome]:
        outcomes: list[RoleOutcome] = []
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
            outcomes += map(describe_solo, asyncio.run(plays))
        return outcomes

    return sum_up_role(role.name, stage, play(1.0), play(0.0))

"""Baselines on the same scenarios: blind, constant, heuristic, exact players, and a single agent's episodes.

Every vote is by the book except where a baseline says otherwise.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from evaluation.scoring.outcomes import RoleOutcome, TeamOutcome, describe_solo
from evaluation.scoring.sealed_plays import score_all
from evaluation.scoring.team_players import (
    BEST_HABITS,
    BEST_SHOWN,
    TablePlay,
    TablePlayer,
    decide_at_random,
    decide_by_majority,
    decide_richest,
    play_best_habits,
    play_chair,
    play_experts,
    play_one_head,
    play_optimum,
)
from roles.base import AnswerError
from roles.team import RECONCILER
from scenarios.base import Family, Scenario
from scenarios.registry import families
from scenarios.team import Style, Table, TeamScenario
from scenarios.team.experts import best_vote
from scenarios.team.single import SingleGame
from simulator.agents.agent import Agent
from simulator.agents.agent_kinds import AgentLimits
from simulator.agents.solo import SoloEpisode
from simulator.chat import Chat
from simulator.engines.base import Engine, Sampling
from simulator.graph.concurrency import run_all
from simulator.graph.runner import MAX_TURNS
from simulator.reading import read_episode
from simulator.records import Episode, Trajectory
from simulator.reward import TeamRewardWeights


def play_role_baselines(
    role: str, scenarios: Sequence[Scenario], style: Style
) -> dict[str, list[RoleOutcome]]:
    """Stage -> plays: random, best constant, greedy heuristic and oracle on the same scenarios."""
    family = families(style)[role]
    players: dict[str, Callable[[Scenario, random.Random], str]] = {
        "random": family.baselines["random"],
        "constant": family.baselines["constant"],
        "heuristic": family.baselines["greedy"],
        "oracle": lambda scenario, rng: family.demonstrate(scenario, rng)[-1].text,
    }
    return {
        name: [_play_role(family, s, player(s, random.Random(f"{name}/{s.key}"))) for s in scenarios]
        for name, player in players.items()
    }


def _play_role(family: Family, scenario: Scenario, text: str) -> RoleOutcome:
    """The outcome of an answer that no model wrote: no turns, no tokens."""
    trajectory = Trajectory(
        role=family.role,
        session="",
        turns=(),
        num_tool_calls=0,
        num_valid_tool_calls=0,
        ended_by="answer",
        final_text=text,
    )
    verdict = family.verify(scenario, text)
    return describe_solo(SoloEpisode(scenario=scenario, trajectory=trajectory, verdict=verdict))


TEAM_PLAYERS: Mapping[str, TablePlayer] = {
    "random": play_chair(decide_at_random),
    "greedy": play_chair(decide_richest),
    "majority": play_chair(decide_by_majority),
    "single": play_one_head,
    "oracle_common": play_experts(None, None),
    "oracle_best": play_experts(*BEST_HABITS),
    "oracle_rising": play_experts(*BEST_SHOWN),
    "oracle_searched": play_experts("searched", "exact"),
    "reachable": play_best_habits,
    "oracle": play_optimum,
}
BASELINES = frozenset({"constant", "heuristic", *TEAM_PLAYERS})  # stages that no model plays


def play_team_baselines(
    scenarios: Sequence[TeamScenario], weights: TeamRewardWeights, stages: Sequence[str] = tuple(TEAM_PLAYERS)
) -> dict[str, list[TeamOutcome]]:
    """Stage -> plays of the random team, heuristic chair, majority vote, one head, expert teams, the optimum.

    `stages`: the players among TEAM_PLAYERS that play.
    """
    return {
        stage: score_all(scenarios, [_play(stage, TEAM_PLAYERS[stage], one) for one in scenarios], weights)
        for stage in stages
    }


def _play(stage: str, player: TablePlayer, scenario: TeamScenario) -> Episode:
    """The player's episode; a random team votes by coin, any other by the book."""
    rng = random.Random(f"{stage}/{scenario.key}")
    play = player(scenario, rng)
    if stage != "random":
        return write_episode(scenario, play)
    coins = {seat: f'{{"vote": "{rng.choice(("accept", "object"))}"}}' for seat in scenario.seats}
    return write_episode(scenario, play, votes=coins)


def write_episode(scenario: TeamScenario, play: TablePlay, votes: Mapping[str, str] | None = None) -> Episode:
    """The play as an episode; votes by the book where none are given."""
    reports = {seat: report.model_dump_json() for seat, report in play.reports.items()}
    return book_episode(scenario, reports, play.decision.model_dump_json(), votes)


def book_episode(
    scenario: TeamScenario, reports: Mapping[str, str], decision: str, votes: Mapping[str, str] | None = None
) -> Episode:
    """Return an episode of these texts; votes that are not given are by the book."""
    episode = Episode(
        scenario_key=scenario.key,
        index_in_group=0,
        trajectories={},
        reports=dict(reports),
        decision=decision,
        votes={},
    )
    read = read_episode(scenario, episode)
    escalated = read.decision is not None and read.decision.escalate
    by_book = {
        seat: best_vote(scenario, seat, read.plan, escalated=escalated).model_dump_json()
        for seat in scenario.seats
    }
    return replace(episode, votes={**by_book, **(votes or {})})


def read_table(scenario: TeamScenario, reports: Mapping[str, str]) -> Table:
    """The checked reports of these texts; a seat whose report cannot be read has None."""
    return read_episode(scenario, book_episode(scenario, reports, "")).table


async def play_alone(
    scenarios: Sequence[TeamScenario],
    *,
    engine: Engine,
    chat: Chat,
    temperature: float,
    max_completion_tokens: int,
    stream: str,
    style: Style,
    policy: str = RECONCILER,
    max_turns: int = MAX_TURNS,
    max_total_tokens: int | None = None,
    first_place: int = 0,
) -> list[Episode]:
    """One plan per scenario by one agent that sees all; its reports offer what the plan buys.

    A transcript that reaches `max_total_tokens`, read and written, ends without a plan.
    """
    sampling = Sampling(temperature=temperature, max_completion_tokens=max_completion_tokens)

    async def play(place: int, scenario: TeamScenario) -> Episode:
        game = SingleGame(scenario, style)
        role = game.prompt_role
        agent = Agent(
            role=role,
            policy=policy,
            engine=engine,
            chat=chat,
            sampling=sampling,
            session=f"{stream}/{temperature}/alone/{place}/{scenario.key}",
            call_tool=game.call_tool if role.tools else None,
            max_turns=max_turns,
            limits=AgentLimits(total_tokens=max_total_tokens),
        )
        episode = write_alone(scenario, await agent.answer(game.write_brief()))
        return replace(episode, trajectories={RECONCILER: agent.trajectory()})

    return await run_all(play(place, scenario) for place, scenario in enumerate(scenarios, first_place))


def write_alone(scenario: TeamScenario, text: str) -> Episode:
    """The plan of the text as an episode, votes by the book; a text that is no plan is no decision."""
    try:
        reports, decision = SingleGame(scenario).read(text)
    except AnswerError:
        return book_episode(scenario, {}, text)
    written = {seat: report.model_dump_json() for seat, report in reports.items()}
    return book_episode(scenario, written, decision.model_dump_json())

"""Plays one agent in place of a team: it has every seat's facts and tools and answers with a plan.

A model that has only ever read reports meets these prompts for the first time.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from evaluation.scoring.baselines import book_episode
from roles.base import AnswerError
from roles.team import RECONCILER
from scenarios.team import Style, TeamScenario
from scenarios.team.single import SingleGame
from simulator.agents.agent import Agent
from simulator.chat import Chat
from simulator.engines.base import Engine, Sampling
from simulator.graph.runner import MAX_TURNS
from simulator.records import Episode


def play_alone(
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
            max_total_tokens=max_total_tokens,
        )
        episode = write_alone(scenario, await agent.answer(game.write_brief()))
        return replace(episode, trajectories={RECONCILER: agent.trajectory()})

    async def play_all() -> list[Episode]:
        plays = (play(place, scenario) for place, scenario in enumerate(scenarios, first_place))
        return list(await asyncio.gather(*plays))

    return asyncio.run(play_all())


def write_alone(scenario: TeamScenario, text: str) -> Episode:
    """The plan of the text as an episode, votes by the book; a text that is no plan is no decision."""
    try:
        reports, decision = SingleGame(scenario).read(text)
    except AnswerError:
        return book_episode(scenario, {}, text)
    written = {seat: report.model_dump_json() for seat, report in reports.items()}
    return book_episode(scenario, written, decision.model_dump_json())

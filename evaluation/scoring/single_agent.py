"""Plays one trained agent in place of a team: it reads every seat's brief and decides alone.

What ReconcileGPT could be asked without training it for the job: all facts, no reports. A model that
has only ever read reports meets these prompts for the first time.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from evaluation.scoring.baselines import book_episode
from roles.base import Role
from roles.registry import ROLES
from roles.team import RECONCILER
from scenarios.team import TeamScenario
from simulator.agents.agent import Agent
from simulator.chat import Chat
from simulator.engines.base import Engine, Sampling
from simulator.records import Episode


def single_brief(scenario: TeamScenario) -> str:
    """Return all that the four seats read, seat by seat, and the options."""
    briefs = "\n".join(seat.brief for seat in scenario.seats.values())
    return f"{briefs}\nOptions {' '.join(scenario.options)}."


def play_alone(
    scenarios: Sequence[TeamScenario],
    *,
    engine: Engine,
    chat: Chat,
    temperature: float,
    max_completion_tokens: int,
    stream: str,
    policy: str = RECONCILER,
    role: Role | None = None,
    first_place: int = 0,
) -> list[Episode]:
    """One decision per scenario by one agent that sees all; reports are empty."""
    sampling = Sampling(temperature=temperature, max_completion_tokens=max_completion_tokens)

    async def play(place: int, scenario: TeamScenario) -> Episode:
        agent = Agent(
            role=role or ROLES[RECONCILER],
            policy=policy,
            engine=engine,
            chat=chat,
            sampling=sampling,
            session=f"{stream}/{temperature}/alone/{place}/{scenario.key}",
        )
        text = await agent.answer(single_brief(scenario))
        episode = book_episode(scenario, {}, text)
        return replace(episode, trajectories={RECONCILER: agent.trajectory()})

    async def play_all() -> list[Episode]:
        plays = (play(place, scenario) for place, scenario in enumerate(scenarios, first_place))
        return list(await asyncio.gather(*plays))

    return asyncio.run(play_all())

"""Plays one role alone on its own family: with tools, verified, many scenarios at once."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from roles.base import Role
from roles.registry import ROLES
from scenarios.base import Family, Scenario, Verdict
from scenarios.registry import FAMILIES
from scenarios.tool_executor import ResultCache, ToolExecutor
from simulator.agents.agent import Agent
from simulator.agents.agent_kinds import AgentKind, AgentLimits
from simulator.chat import Chat
from simulator.engines.base import Engine, Sampling
from simulator.records import Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class SoloEpisode:
    """A role's trajectory on one scenario of its own family, and its verdict."""

    scenario: Scenario
    trajectory: Trajectory
    verdict: Verdict


async def play_solo(
    scenario: Scenario,
    *,
    policy: str,
    engine: Engine,
    chat: Chat,
    sampling: Sampling,
    session: str,
    max_turns: int,
    max_failed_calls: int | None = None,
    families: Mapping[str, Family] = FAMILIES,
    roles: Mapping[str, Role] = ROLES,
    results: ResultCache | None = None,
    kind: AgentKind = "react",
    limits: AgentLimits | None = None,
) -> SoloEpisode:
    """Play one scenario; a policy's faults become the verdict, an engine's are raised.

    It ends without an answer after `max_turns` turns or `max_failed_calls` failed calls (None: no limit).
    `families` and `roles` are where the scenario's names are looked up; `results` may be shared by plays.
    What `limits` names goes before `max_turns`, `max_failed_calls` and the sampling.
    """
    family, limits = families[scenario.family], limits or AgentLimits()
    agent = Agent(
        role=roles[scenario.role],
        policy=policy,
        engine=engine,
        chat=chat,
        sampling=sampling,
        session=session,
        call_tool=ToolExecutor(family, scenario, results=results),
        kind=kind,
        max_turns=max_turns,
        limits=replace(limits, failed_calls=limits.failed_calls or max_failed_calls),
    )
    text = await agent.answer(scenario.brief)
    return SoloEpisode(
        scenario=scenario, trajectory=agent.trajectory(), verdict=family.verify(scenario, text)
    )


async def play_solos(
    scenarios: Sequence[Scenario],
    *,
    policy: str,
    engine: Engine,
    chat: Chat,
    sampling: Sampling,
    stream: str,
    first_place: int = 0,
    max_turns: int,
    max_failed_calls: int | None = None,
    families: Mapping[str, Family] = FAMILIES,
    roles: Mapping[str, Role] = ROLES,
    kind: AgentKind = "react",
    limits: AgentLimits | None = None,
) -> list[SoloEpisode]:
    """Play scenarios side by side, in their order.

    `stream` keeps sessions of different calls apart; `first_place` numbers the scenarios of a later part.
    """
    results = ResultCache()
    plays = (
        play_solo(
            scenario,
            policy=policy,
            engine=engine,
            chat=chat,
            sampling=sampling,
            session=f"{stream}/{position}/{scenario.key}",
            max_turns=max_turns,
            max_failed_calls=max_failed_calls,
            families=families,
            roles=roles,
            results=results,
            kind=kind,
            limits=limits,
        )
        for position, scenario in enumerate(scenarios, first_place)
    )
    return list(await asyncio.gather(*plays))

"""Plays a step of GRPO: scenarios of roles alone to groups of episodes, all side by side."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from roles.base import Role
from roles.errors import InfrastructureError
from roles.registry import ROLES
from scenarios.base import Family, Scenario
from scenarios.registry import FAMILIES
from scenarios.tasks.sandbox import find_sandbox
from scenarios.tool_executor import ResultCache
from simulator.agents.solo import SoloEpisode, play_solo
from simulator.chat import Chat
from simulator.engines.base import Engine, Sampling
from training.config.grpo_config import GrpoConfig
from training.rl.records import SoloGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class SoloPlayer:
    """Plays each scenario as often as a group is large, with the policy named like its role.

    Raises:
        UserError: code agents where no sandbox works.
    """

    config: GrpoConfig
    chat: Chat
    families: Mapping[str, Family] = field(default_factory=lambda: FAMILIES)
    roles: Mapping[str, Role] = field(default_factory=lambda: ROLES)
    group_size: int | None = None  # None: the config's

    def __post_init__(self) -> None:
        if self.config.agent == "code":
            find_sandbox()

    def play(
        self, engine: Engine, scenarios: Sequence[Scenario], stream: str, first_place: int = 0
    ) -> list[SoloGroup]:
        """The groups of these scenarios, in their order; what a play raises stands in its episode's place.

        A part of a step's scenarios samples as in the whole step if `first_place` says where it begins.
        """
        size = self.group_size or self.config.group_size
        repeated = [scenario for scenario in scenarios for _ in range(size)]
        played = self.play_once(
            engine,
            repeated,
            stream,
            temperature=self.config.temperature,
            first_place=first_place * size,
        )
        return [
            SoloGroup(scenario=scenario, episodes=tuple(played[place * size : (place + 1) * size]))
            for place, scenario in enumerate(scenarios)
        ]

    def play_validation(
        self, engine: Engine, scenarios: Sequence[Scenario], stream: str, first_place: int = 0
    ) -> list[SoloGroup]:
        """One episode of every scenario at the temperature of a step.

        Raises:
            InfrastructureError: an episode was lost.
        """
        played = self.play_once(
            engine, scenarios, stream, temperature=self.config.temperature, first_place=first_place
        )
        if lost := [one for one in played if isinstance(one, Exception)]:
            raise InfrastructureError(f"{len(lost)} of {len(played)} episodes were lost: {lost[0]}")
        return [
            SoloGroup(scenario=scenario, episodes=(episode,))
            for scenario, episode in zip(scenarios, played, strict=True)
        ]

    def play_once(
        self,
        engine: Engine,
        scenarios: Sequence[Scenario],
        stream: str,
        *,
        temperature: float,
        first_place: int = 0,
    ) -> list[SoloEpisode | Exception]:
        """One episode per scenario; what a play raises stands in its place."""
        config, results = self.config, ResultCache()
        sampling = Sampling(temperature=temperature, max_completion_tokens=config.max_completion_tokens)

        async def play_all() -> list[Any]:
            plays = (
                play_solo(
                    scenario,
                    policy=scenario.role,
                    engine=engine,
                    chat=self.chat,
                    sampling=sampling,
                    session=f"{stream}/{position}/{scenario.key}",
                    max_turns=config.max_turns,
                    max_failed_calls=config.max_failed_calls,
                    families=self.families,
                    roles=self.roles,
                    results=results,
                    kind=config.agent,
                )
                for position, scenario in enumerate(scenarios, start=first_place)
            )
            return await asyncio.gather(*plays, return_exceptions=True)

        played = asyncio.run(play_all())
        for one in played:
            if isinstance(one, MemoryError | torch.OutOfMemoryError):  # every other play would meet it, too
                raise one
        return [_make_portable(one) for one in played]


def _make_portable(played: SoloEpisode | Exception) -> SoloEpisode | Exception:
    """Replace an exception by one that hosts and ranks can send to each other."""
    if isinstance(played, SoloEpisode):
        return played
    if isinstance(played, InfrastructureError):
        return InfrastructureError(str(played))
    return RuntimeError(f"{type(played).__name__}: {played}")

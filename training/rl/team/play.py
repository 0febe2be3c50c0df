"""Plays a step under protocol `assess`: scenarios to groups of episodes.

Every scenario has `report_sets` full episodes, and further decisions on the reports of each, in all
`decisions_per_set`; with two or more rounds they are voted on. A group with an infrastructure fault is left
out.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from roles.errors import InfrastructureError
from scenarios.team import TeamScenario
from simulator.chat import Chat
from simulator.engines.base import Engine, Sampling
from simulator.game import MakeGame
from simulator.graph.runner import play_decisions, play_episodes, play_team
from simulator.records import Episode
from training.config.marl_config import MarlConfig
from training.rl.records import EpisodeGroup, ReportSet

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssessPlayer:
    """Plays reports, decision and votes."""

    config: MarlConfig
    chat: Chat
    roles: tuple[str, ...]
    make_game: MakeGame

    def play(
        self, engine: Engine, scenarios: Sequence[TeamScenario], stream: str, first_place: int = 0
    ) -> list[EpisodeGroup]:
        """The complete groups of these scenarios, in their order.

        A part of a step's scenarios samples as in the whole step if `first_place` says where it begins.
        """
        return asyncio.run(self._play(engine, scenarios, stream, first_place))

    def play_validation(
        self, engine: Engine, scenarios: Sequence[TeamScenario], stream: str, first_place: int = 0
    ) -> list[EpisodeGroup]:
        """One episode of every scenario at the temperature of a step.

        Raises:
            InfrastructureError: an episode was lost.
        """
        episodes = play_team(
            list(scenarios),
            engine=engine,
            chat=self.chat,
            temperature=self.config.temperature,
            max_completion_tokens=self.config.max_completion_tokens,
            stream=stream,
            rounds=self.config.rounds,
            first_place=first_place,
            make_game=self.make_game,
        )
        if lost := [one.error for one in episodes if one.error]:
            raise InfrastructureError(f"{len(lost)} of {len(episodes)} episodes were lost: {lost[0]}")
        return [
            EpisodeGroup(scenario=scenario, report_sets=(ReportSet(episodes=(episode,)),))
            for scenario, episode in zip(scenarios, episodes, strict=True)
        ]

    async def _play(
        self, engine: Engine, scenarios: Sequence[TeamScenario], stream: str, first_place: int
    ) -> list[EpisodeGroup]:
        config = self.config
        num_sets, num_further = config.report_sets, config.decisions_per_set - 1
        num_episodes = len(scenarios) * num_sets
        team, sampling = {role: role for role in self.roles}, make_sampling(config, config.temperature)
        full = await play_episodes(
            scenarios,
            team,
            engine,
            self.chat,
            sampling,
            rounds=config.rounds,
            num_repeats=num_sets,
            concurrency=max(1, num_episodes),
            stream=stream,
            make_game=self.make_game,
            first_place=first_place,
        )
        cases = [scenario for scenario in scenarios for _ in range(num_sets)]
        is_voted_on = config.rounds >= 2
        further = await play_decisions(
            list(zip(cases, full, strict=True)),
            team,
            engine,
            self.chat,
            sampling,
            num_decisions=num_further,
            with_votes=is_voted_on,
            rounds=config.rounds if is_voted_on else 1,
            concurrency=max(1, num_episodes * config.decisions_per_set),
            stream=stream,
            make_game=self.make_game,
            first_place=first_place * num_sets,
        )
        sets = [
            ReportSet(episodes=(episode, *further[place * num_further : (place + 1) * num_further]))
            for place, episode in enumerate(full)
        ]
        return complete_groups(
            [
                EpisodeGroup(
                    scenario=scenario, report_sets=tuple(sets[place * num_sets : (place + 1) * num_sets])
                )
                for place, scenario in enumerate(scenarios)
            ]
        )


def make_sampling(config: MarlConfig, temperature: float) -> Sampling:
    """Sampling of a joint step at this temperature."""
    return Sampling(temperature=temperature, max_completion_tokens=config.max_completion_tokens)


def complete_groups(groups: Sequence[EpisodeGroup]) -> list[EpisodeGroup]:
    """The groups without an infrastructure fault in any of their episodes; others are logged."""
    errors = [next((one.error for one in list_episodes(group) if one.error), None) for group in groups]
    lost = [error for error in errors if error]
    if lost:
        logger.warning("%d of %d groups left out: %s", len(lost), len(groups), lost[0])
    return [group for group, error in zip(groups, errors, strict=True) if not error]


def list_episodes(group: EpisodeGroup) -> list[Episode]:
    """Every episode of a group."""
    return [episode for one in group.report_sets for episode in one.episodes]

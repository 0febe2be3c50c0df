"""Plays a step under protocol `assess`: scenarios to groups of episodes.

Every scenario has `decided_sets` full episodes (0: `report_sets`), beside them the other sets of reports,
then `decisions_per_set` decisions on each decided set. A group with an infrastructure fault is left out.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from evaluation.scoring.sealed_plays import play_team
from scenarios.team import TeamScenario
from simulator.chat import Chat
from simulator.engines.base import Engine, Sampling
from simulator.game import MakeGame
from simulator.graph.runner import play_decisions, play_episodes, play_reports
from simulator.records import Episode
from training.config.marl_config import MarlConfig
from training.joint.records import EpisodeGroup, ReportSet


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

    def play_greedily(
        self, engine: Engine, scenarios: Sequence[TeamScenario], stream: str
    ) -> list[EpisodeGroup]:
        """One episode of every scenario at temperature 0.

        Raises:
            InfrastructureError: an episode was lost.
        """
        episodes = play_team(
            list(scenarios),
            engine=engine,
            chat=self.chat,
            temperature=0.0,
            max_completion_tokens=self.config.max_completion_tokens,
            stream=stream,
            rounds=self.config.rounds,
            make_game=self.make_game,
        )
        return [
            EpisodeGroup(scenario=scenario, report_sets=(ReportSet(episodes=(episode,)),))
            for scenario, episode in zip(scenarios, episodes, strict=True)
        ]

    async def _play(
        self, engine: Engine, scenarios: Sequence[TeamScenario], stream: str, first_place: int
    ) -> list[EpisodeGroup]:
        config = self.config
        num_decided = config.num_decided
        full, undecided = await asyncio.gather(
            self._play_episodes(
                engine,
                scenarios,
                stream,
                num_repeats=num_decided,
                first_place=first_place,
            ),
            self._report(engine, scenarios, stream, config.report_sets - num_decided, first_place),
        )
        cases = [scenario for scenario in scenarios for _ in range(num_decided)]
        num_further = config.decisions_per_set - 1
        further = await self._decide(
            engine,
            list(zip(cases, full, strict=True)),
            num_further,
            stream,
            first_place=first_place * num_decided,
        )
        decided = [
            ReportSet(episodes=(episode, *further[place * num_further : (place + 1) * num_further]))
            for place, episode in enumerate(full)
        ]
        reported = [ReportSet(episodes=(episode,), is_decided=False) for episode in undecided]
        num_reported = config.report_sets - num_decided
        groups = [
            EpisodeGroup(
                scenario=scenario,
                report_sets=(
                    *decided[place * num_decided : (place + 1) * num_decided],
                    *reported[place * num_reported : (place + 1) * num_reported],
                ),
            )
            for place, scenario in enumerate(scenarios)
        ]
        return complete_groups(groups)

    async def _play_episodes(
        self,
        engine: Engine,
        scenarios: Sequence[TeamScenario],
        stream: str,
        *,
        num_repeats: int,
        first_place: int,
    ) -> list[Episode]:
        return await play_episodes(
            scenarios,
            {role: role for role in self.roles},
            engine,
            self.chat,
            make_sampling(self.config, self.config.temperature),
            rounds=self.config.rounds,
            num_repeats=num_repeats,
            concurrency=max(1, len(scenarios) * num_repeats),
            stream=stream,
            make_game=self.make_game,
            first_place=first_place,
        )

    async def _report(
        self,
        engine: Engine,
        scenarios: Sequence[TeamScenario],
        stream: str,
        num_repeats: int,
        first_place: int,
    ) -> list[Episode]:
        """So many sets of reports of every scenario that nobody decides on."""
        if not num_repeats:
            return []
        return await play_reports(
            scenarios,
            {role: role for role in self.roles},
            engine,
            self.chat,
            make_sampling(self.config, self.config.temperature),
            num_repeats=num_repeats,
            concurrency=max(1, len(scenarios) * num_repeats),
            stream=stream,
            make_game=self.make_game,
            first_place=first_place,
        )

    async def _decide(
        self,
        engine: Engine,
        report_sets: Sequence[tuple[TeamScenario, Episode]],
        num_decisions: int,
        stream: str,
        *,
        first_place: int,
    ) -> list[Episode]:
        """Further decisions on these reports; they are voted on where there are several rounds."""
        with_votes = self.config.rounds >= 2
        return await play_decisions(
            report_sets,
            {role: role for role in self.roles},
            engine,
            self.chat,
            make_sampling(self.config, self.config.temperature),
            num_decisions=num_decisions,
            with_votes=with_votes,
            rounds=self.config.rounds if with_votes else 1,
            concurrency=max(1, len(report_sets) * self.config.decisions_per_set),
            stream=stream,
            make_game=self.make_game,
            first_place=first_place,
        )


def make_sampling(config: MarlConfig, temperature: float) -> Sampling:
    """Sampling of a joint step at this temperature."""
    return Sampling(temperature=temperature, max_completion_tokens=config.max_completion_tokens)


def complete_groups(groups: Sequence[EpisodeGroup]) -> list[EpisodeGroup]:
    """The groups without an infrastructure fault in any of their episodes."""
    return [group for group in groups if not any(one.error for one in list_episodes(group))]


def list_episodes(group: EpisodeGroup) -> list[Episode]:
    """Every episode of a group."""
    return [episode for one in group.report_sets for episode in one.episodes]

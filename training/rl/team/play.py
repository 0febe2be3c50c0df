"""Plays a joint step: scenarios to groups of episodes. A group with an infrastructure fault is left out.

Under protocol `assess` every scenario has `report_sets` full episodes, and further decisions on the reports
of each, in all `decisions_per_set`; with two or more rounds they are voted on.

Under protocol `full` it has one governed episode per report set, in memory, all of a step in flight at once.
Every set of a case meets the same world, so that sets are compared on the team's acts alone. The approver
knows no truth: it passes what the house's own rules (`simulator/governance/resolution.py`) let through, and
signs what they hand over to it.
"""

import asyncio
import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace

from roles.errors import InfrastructureError
from roles.registry import ROLES
from scenarios.team import PlanGame, TeamScenario
from simulator.chat import Chat
from simulator.engines.base import Engine, Sampling
from simulator.game import MakeGame
from simulator.governance.outcomes import SimulatedOutcomes
from simulator.governance.record import GovernedRecord, read_record
from simulator.governance.reviewers import SimulatedReviewer, score_by_worth
from simulator.governance.runner import FAILED, VIOLATION, WAITING, open_services, play_governed
from simulator.governance.seals import KEY_BYTES
from simulator.graph.concurrency import run_all
from simulator.graph.runner import MAX_TURNS, play_decisions, play_episodes, play_team
from simulator.graph.seating import Seating
from training.config.rl_config import MarlConfig
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
            with_replies=any(self.make_game(one).most_questions for one in scenarios),
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
        parts = [tuple(sets[start : start + num_sets]) for start in range(0, len(sets), num_sets)]
        return complete_groups(
            [
                EpisodeGroup(scenario=case, report_sets=part)
                for case, part in zip(scenarios, parts, strict=True)
            ]
        )


def make_sampling(config: MarlConfig, temperature: float) -> Sampling:
    """Sampling of a joint step at this temperature."""
    return Sampling(temperature=temperature, max_completion_tokens=config.max_completion_tokens)


def complete_groups(groups: Sequence[EpisodeGroup]) -> list[EpisodeGroup]:
    """The groups without an infrastructure fault in any of their episodes; others are logged."""
    errors = [
        [episode.error for one in group.report_sets for episode in one.episodes if episode.error]
        for group in groups
    ]
    if lost := [of_group[0] for of_group in errors if of_group]:
        logger.warning("%d of %d groups left out: %s", len(lost), len(groups), lost[0])
    return [group for group, of_group in zip(groups, errors, strict=True) if not of_group]


WORLD = 0  # seeds all worlds, with the case and the option


@dataclass(frozen=True, slots=True, kw_only=True)
class GovernedPlayer:
    """Plays governed episodes, one per set of reports."""

    config: MarlConfig
    chat: Chat
    roles: tuple[str, ...]
    make_game: MakeGame = PlanGame

    def play(
        self, engine: Engine, scenarios: Sequence[TeamScenario], stream: str, first_place: int = 0
    ) -> list[EpisodeGroup]:
        """The complete groups of these scenarios; what is sampled does not depend on `first_place`."""
        return asyncio.run(
            self._play(engine, scenarios, stream, self.config.temperature, self.config.report_sets)
        )

    def play_validation(
        self, engine: Engine, scenarios: Sequence[TeamScenario], stream: str, first_place: int = 0
    ) -> list[EpisodeGroup]:
        """One governed episode of every case at the temperature of a step; raises as `play_each`."""
        return asyncio.run(self.play_each(engine, scenarios, stream, temperature=self.config.temperature))

    async def play_each(
        self, engine: Engine, scenarios: Sequence[TeamScenario], stream: str, *, temperature: float
    ) -> list[EpisodeGroup]:
        """One governed episode of every case.

        Raises:
            InfrastructureError: an episode was lost.
        """
        groups = await self._play(engine, scenarios, stream, temperature, 1)
        if lost := len(scenarios) - len(groups):
            raise InfrastructureError(f"{lost} of {len(scenarios)} cases were lost")
        return groups

    async def _play(
        self,
        engine: Engine,
        scenarios: Sequence[TeamScenario],
        stream: str,
        temperature: float,
        num_sets: int,
    ) -> list[EpisodeGroup]:
        seating = Seating(
            team={role: role for role in self.roles},
            engine=engine,
            chat=self.chat,
            sampling=make_sampling(self.config, temperature),
            stream=f"{stream}/governed",
            max_turns=MAX_TURNS,
            roles=ROLES,
            make_game=self.make_game,
        )
        return await play_governed_groups(scenarios, seating, self.config.rounds, num_sets=num_sets)


async def play_governed_groups(
    scenarios: Sequence[TeamScenario], seating: Seating, rounds: int, *, num_sets: int
) -> list[EpisodeGroup]:
    """`num_sets` governed episodes of every case, side by side; a fault takes out its whole case.

    What is sampled depends on the seating's stream, the set's number and the case's key alone.
    """
    by_set = await run_all(
        play_set(scenarios, replace(seating, stream=f"{seating.stream}/{number}"), rounds)
        for number in range(num_sets)
    )
    return [
        EpisodeGroup(
            scenario=scenario,
            report_sets=tuple(
                ReportSet(episodes=(record.episode,), governed=record) for record in records if record
            ),
        )
        for scenario, records in zip(scenarios, zip(*by_set, strict=True), strict=True)
        if all(record is not None for record in records)
    ]


async def play_set(
    scenarios: Sequence[TeamScenario], seating: Seating, rounds: int
) -> list[GovernedRecord | None]:
    """One governed episode per case on services of its own; None for an infrastructure fault."""
    reviewer = SimulatedReviewer(score_by_worth, least_share=0.0)  # passes all that it is shown
    async with open_services(None, key=secrets.token_bytes(KEY_BYTES)) as services:
        played = await play_governed(
            scenarios,
            services,
            seating,
            reviewer,
            lambda scenario: SimulatedOutcomes(scenario, seed=WORLD),
            rounds=rounds,
            concurrency=max(1, len(scenarios)),
        )
        records: list[GovernedRecord | None] = []
        for scenario, episode in zip(scenarios, played, strict=True):
            if episode.status in (VIOLATION, WAITING):
                raise RuntimeError(f"{episode.thread} ended as {episode.status}: {episode.error}")
            is_lost = episode.status == FAILED
            if is_lost:
                logger.warning("%s left out: %s", scenario.key, episode.error)
            records.append(
                None if is_lost else read_record(scenario, episode, services, stream=seating.stream)
            )
        return records

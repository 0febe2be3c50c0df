"""Plays what one step of joint training compares: report sets, decisions on each, and what credit asks for.

A replayed decision is not voted on: it is scored as if its votes were as right as those on the first
decision on these reports. With two or more rounds every decision is played out with its own votes.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from roles.registry import ROLES
from scenarios.team import TeamScenario
from simulator.chat import Chat
from simulator.engines.base import Engine, Sampling
from simulator.graph.runner import MAX_TURNS, play_decisions, play_episodes
from simulator.graph.seating import Seating
from simulator.records import Episode
from simulator.reward import TeamRewardWeights, TeamVerdict, score_episode, with_consensus
from training.config.run_config import MarlConfig
from training.joint.credit.base import CreditScheme
from training.joint.credit.counterfactuals import (
    Explained,
    brief_of,
    count_explained,
    expected_reward,
    fit_practices,
    leave_out,
)
from training.joint.exchanges import fill_exchanges, mixed_episodes
from training.joint.governed_play import add_greedy, play_governed_sets
from training.joint.played import PlayedSet, complete_groups, group_by_scenario, pick_agreement

Sets = Sequence[tuple[TeamScenario, Episode]]


@dataclass(frozen=True, slots=True, kw_only=True)
class JointPlay:
    """How a step is played."""

    config: MarlConfig
    credit: CreditScheme
    chat: Chat
    reward_weights: TeamRewardWeights
    roles: tuple[str, ...]

    def play(
        self, engine: Engine, scenarios: Sequence[TeamScenario], stream: str, first_place: int = 0
    ) -> list[PlayedSet]:
        """Report sets of all scenarios, with their decisions and rewards; incomplete groups are left out.

        A part of a step's scenarios samples as in the whole step if `first_place` says where it begins.
        """
        return asyncio.run(self.play_async(engine, scenarios, stream, first_place))

    async def play_async(
        self, engine: Engine, scenarios: Sequence[TeamScenario], stream: str, first_place: int = 0
    ) -> list[PlayedSet]:
        """The same inside a running event loop."""
        config = self.config
        if config.protocol == "full":
            return await self._play_governed(engine, scenarios, stream)
        first = await play_episodes(
            scenarios,
            self._team,
            engine,
            self.chat,
            self._sampling(config.temperature),
            rounds=config.rounds,
            num_repeats=config.report_sets,
            concurrency=max(1, len(scenarios) * config.report_sets),
            stream=stream,
            first_place=first_place,
        )
        sets = [
            (scenario, first[place * config.report_sets + index])
            for place, scenario in enumerate(scenarios)
            for index in range(config.report_sets)
        ]
        first_set = first_place * config.report_sets
        more = await self._decide(
            engine,
            sets,
            config.decisions_per_set - 1,
            stream,
            with_votes=config.rounds >= 2,
            first_place=first_set,
        )
        absences: list[Episode] = []
        if self.credit.counterfactuals == "absences":
            reduced = [
                (scenario, leave_out(episode, role)) for scenario, episode in sets for role in scenario.seats
            ]
            first_absence = sum(len(one.seats) for one in scenarios[:1]) * first_set
            absences = await self._decide(engine, reduced, 1, f"{stream}/without", first_place=first_absence)
        played = self._score(sets, more, absences)
        if self.config.estimator == "remax":
            played = await self._add_greedy(engine, played, stream)
        if self.credit.counterfactuals == "swaps" and config.rescore == "engine":
            played = await self.exchange_by_engine(engine, played, stream)
        return played

    def play_greedily(
        self, engine: Engine, scenarios: Sequence[TeamScenario], stream: str
    ) -> list[PlayedSet]:
        """One governed episode of every case at temperature 0; cases that a fault took are left out."""
        return asyncio.run(self._govern(engine, scenarios, stream, num_sets=1, temperature=0.0))

    async def _play_governed(
        self, engine: Engine, scenarios: Sequence[TeamScenario], stream: str
    ) -> list[PlayedSet]:
        """A step under protocol `full`; where in the whole step these cases stand does not matter."""
        config = self.config
        played = await self._govern(
            engine, scenarios, stream, num_sets=config.report_sets, temperature=config.temperature
        )
        if config.estimator == "remax":
            greedy = await self._govern(engine, scenarios, f"{stream}/greedy", num_sets=1, temperature=0.0)
            played = add_greedy(played, greedy)
        return played

    async def _govern(
        self,
        engine: Engine,
        scenarios: Sequence[TeamScenario],
        stream: str,
        *,
        num_sets: int,
        temperature: float,
    ) -> list[PlayedSet]:
        seating = Seating(
            team=self._team,
            engine=engine,
            chat=self.chat,
            sampling=self._sampling(temperature),
            stream=f"{stream}/governed",
            max_turns=MAX_TURNS,
            roles=ROLES,
        )
        return await play_governed_sets(
            scenarios, seating, self.config, self.reward_weights, num_sets=num_sets
        )

    @property
    def _team(self) -> Mapping[str, str]:
        return {role: role for role in self.roles}

    def _sampling(self, temperature: float) -> Sampling:
        return Sampling(temperature=temperature, max_completion_tokens=self.config.max_completion_tokens)

    async def _decide(
        self,
        engine: Engine,
        sets: Sets,
        num_decisions: int,
        stream: str,
        *,
        with_votes: bool = False,
        temperature: float | None = None,
        first_place: int = 0,
    ) -> list[Episode]:
        return await play_decisions(
            sets,
            self._team,
            engine,
            self.chat,
            self._sampling(self.config.temperature if temperature is None else temperature),
            num_decisions=num_decisions,
            with_votes=with_votes,
            rounds=self.config.rounds if with_votes else 1,
            concurrency=max(1, len(sets) * self.config.decisions_per_set),
            stream=stream,
            first_place=first_place,
        )

    def _score(self, sets: Sets, more: Sequence[Episode], absences: Sequence[Episode]) -> list[PlayedSet]:
        """All sets without a fault, scored; the rest of a scenario with a fault is left out too."""
        num_more = self.config.decisions_per_set - 1
        played = []
        for place, (scenario, episode) in enumerate(sets):
            branches = more[place * num_more : (place + 1) * num_more]
            num_seats = len(scenario.seats)
            reduced = absences[place * num_seats : (place + 1) * num_seats]
            if episode.error or any(branch.error for branch in (*branches, *reduced)):
                continue
            verdict = self._judge(scenario, episode)
            verdicts = (verdict, *(self._judge_replay(scenario, branch, verdict) for branch in branches))
            without = {
                role: self._judge_replay(scenario, absence, verdict).reward
                for role, absence in zip(scenario.seats, reduced, strict=False)
            }
            played.append(
                PlayedSet(
                    scenario=scenario, decisions=(episode, *branches), verdicts=verdicts, without=without
                )
            )
        return complete_groups(played, self.config.report_sets)

    def _judge(self, scenario: TeamScenario, episode: Episode) -> TeamVerdict:
        verdict = score_episode(scenario, episode, self.reward_weights)
        if self.config.reward == "agreement_only":
            return replace(verdict, reward=pick_agreement(scenario, episode))
        return verdict

    def _judge_replay(self, scenario: TeamScenario, episode: Episode, first: TeamVerdict) -> TeamVerdict:
        verdict = self._judge(scenario, episode)
        if episode.votes or self.config.reward == "agreement_only":
            return verdict
        return with_consensus(verdict, first.consensus, self.reward_weights)

    async def _add_greedy(self, engine: Engine, played: Sequence[PlayedSet], stream: str) -> list[PlayedSet]:
        """The rewards at temperature 0, of the whole scenario and of a decision on each set of reports."""
        groups = group_by_scenario(played)
        scenarios = [group[0].scenario for group in groups]
        if not scenarios:
            return []
        whole = await play_episodes(
            scenarios,
            self._team,
            engine,
            self.chat,
            self._sampling(0.0),
            rounds=self.config.rounds,
            concurrency=len(scenarios),
            stream=f"{stream}/greedy",
        )
        sets = [(one.scenario, one.episode) for group in groups for one in group]
        decided = await self._decide(
            engine, sets, 1, f"{stream}/greedy", with_votes=self.config.rounds >= 2, temperature=0.0
        )
        extended = []
        decisions = iter(decided)
        for group, episode in zip(groups, whole, strict=True):
            own = [next(decisions) for _ in group]
            if episode.error or any(decision.error for decision in own):
                continue
            reward = self._judge(group[0].scenario, episode).reward
            for one, decision in zip(group, own, strict=True):
                alone = self._judge_replay(one.scenario, decision, one.verdicts[0]).reward
                extended.append(replace(one, greedy_episode=reward, greedy_decision=alone))
        return extended

    def exchange_by_practice(
        self, played: Sequence[PlayedSet], gather: Callable[[Explained], list[Explained]]
    ) -> list[PlayedSet]:
        """What every report is worth in place of the others, by practices fitted to all ranks' decisions."""
        decided = [(one.scenario, episode) for one in played for episode in one.decisions]
        explained = sum(gather(count_explained(decided)), Counter())
        if not played:
            return []
        mix = fit_practices(explained, played[0].scenario.conventions.decision_shares)

        def worth(scenario: TeamScenario, mixed: Episode, first: TeamVerdict) -> float:
            return expected_reward(
                scenario, mixed, mix, lambda decided: self._judge_replay(scenario, decided, first).reward
            )

        return fill_exchanges(played, worth)

    async def exchange_by_engine(
        self, engine: Engine, played: Sequence[PlayedSet], stream: str
    ) -> list[PlayedSet]:
        """The same by asking ReconcileGPT; sets that read the same are asked once."""
        asked: dict[tuple[str, str], tuple[TeamScenario, Episode]] = {}
        for scenario, mixed in mixed_episodes(played):
            asked.setdefault((scenario.key, brief_of(scenario, mixed)), (scenario, mixed))
        num = self.config.decisions_per_set
        decided = await self._decide(engine, list(asked.values()), num, f"{stream}/swapped")
        answers = {key: decided[place * num : (place + 1) * num] for place, key in enumerate(asked)}

        def worth(scenario: TeamScenario, mixed: Episode, first: TeamVerdict) -> float | None:
            episodes = answers[scenario.key, brief_of(scenario, mixed)]
            if any(episode.error for episode in episodes):
                return None
            rewards = [
                self._judge_replay(scenario, replace(e, reports=mixed.reports), first).reward
                for e in episodes
            ]
            return sum(rewards) / num

        return fill_exchanges(played, worth)

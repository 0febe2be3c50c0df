"""Scores a joint step: groups of episodes to groups with the team reward of every episode.

Under protocol `assess` a replayed decision is not voted on: it is scored as if its votes were as right as
those on the first decision on the same reports. With two or more rounds every decision has votes of its own.

Under protocol `full` the reward is that of what the plans brought in the one world of their case. First
reports of all sets stand on the same case, so a credit scheme may value them by the verifier. What seats
write for a re-plan depends on what became of the plan before: nothing compares it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from roles.team import RECONCILER
from scenarios.team import TeamScenario
from simulator.governance.governed_reward import open_episode, score_governed, value_plans
from simulator.governance.outcomes import SimulatedOutcomes
from simulator.governance.record import GovernedRecord
from simulator.reading import read_episode
from simulator.records import Episode
from simulator.reward import TeamRewardWeights, TeamVerdict, score_episode, with_consensus
from training.rl.credit import ValueOffers
from training.rl.records import EpisodeGroup, Plans, ReportSet, ScoredEpisode, ScoredGroup, ScoredReportSet
from training.rl.team.play import WORLD

Reward = Callable[[TeamScenario, Episode, TeamVerdict], TeamVerdict]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssessScorer:
    """Scores episodes of protocol `assess`."""

    weights: TeamRewardWeights
    reward: Reward
    value_offers: ValueOffers | None = None  # what the credit scheme reads of the offers alone

    def score(self, groups: Sequence[EpisodeGroup]) -> list[ScoredGroup]:
        """The groups with a verdict on every episode."""
        return [self._score_group(group) for group in groups]

    def score_validation(self, groups: Sequence[EpisodeGroup]) -> tuple[list[float], dict[str, float]]:
        """The team reward of every case's first episode."""
        return [group.report_sets[0].rewards[0] for group in self.score(groups)], {}

    def _score_group(self, group: EpisodeGroup) -> ScoredGroup:
        scenario = group.scenario
        return ScoredGroup(
            scenario=scenario,
            report_sets=tuple(
                self._score_set(scenario, one, worth)
                for one, worth in zip(group.report_sets, self._value_reports(group), strict=True)
            ),
        )

    def _score_set(
        self,
        scenario: TeamScenario,
        report_set: ReportSet,
        counterfactual_rewards: Mapping[str, tuple[float, ...]],
    ) -> ScoredReportSet:
        full, *further = report_set.episodes
        first = self._judge(scenario, full)
        verdicts = [first, *(self._judge(scenario, episode, first) for episode in further)]
        return ScoredReportSet(
            scored=tuple(
                ScoredEpisode(episode=episode, verdict=verdict)
                for episode, verdict in zip((full, *further), verdicts, strict=True)
            ),
            counterfactual_rewards=counterfactual_rewards,
        )

    def _value_reports(self, group: EpisodeGroup) -> list[dict[str, tuple[float, ...]]]:
        if self.value_offers is None:
            return [{} for _ in group.report_sets]
        tables = [read_episode(group.scenario, one.episodes[0]).table for one in group.report_sets]
        return self.value_offers(group.scenario, tables, self.weights)

    def _judge(
        self, scenario: TeamScenario, episode: Episode, first: TeamVerdict | None = None
    ) -> TeamVerdict:
        """The verdict; an episode without votes takes the consensus of the first one on its reports."""
        verdict = score_episode(scenario, episode, self.weights)
        if first is not None and not episode.votes:
            verdict = with_consensus(verdict, first.consensus, self.weights)
        return self.reward(scenario, episode, verdict)


def reward_team(scenario: TeamScenario, episode: Episode, verdict: TeamVerdict) -> TeamVerdict:
    """The verdict as it is: the team reward."""
    return verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class GovernedScorer:
    """Scores episodes of protocol `full`.

    A scored episode holds reports, decision and votes of the first plan, which stand on the case as it was
    drawn; its trajectories and its verdict are those of the whole course.
    """

    weights: TeamRewardWeights
    reward: Reward
    value_offers: ValueOffers | None = None  # what the credit scheme reads of the first offers alone

    def score(self, groups: Sequence[EpisodeGroup]) -> list[ScoredGroup]:
        """The groups with verdict and plans of every closed episode.

        Raises:
            ValueError: not every call of ReconcileGPT belongs to a draft.
        """
        return [self._score_group(group) for group in groups]

    def score_validation(self, groups: Sequence[EpisodeGroup]) -> tuple[list[float], dict[str, float]]:
        """The team reward of every case's first episode."""
        return [group.report_sets[0].rewards[0] for group in self.score(groups)], {}

    def _score_group(self, group: EpisodeGroup) -> ScoredGroup:
        outcomes = SimulatedOutcomes(group.scenario, seed=WORLD)
        scored = [self._score_set(group.scenario, outcomes, one) for one in group.report_sets]
        return ScoredGroup(
            scenario=group.scenario,
            report_sets=tuple(
                ScoredReportSet(scored=(one,), counterfactual_rewards=worth)
                for one, worth in zip(scored, self._value_reports(group.scenario, scored), strict=True)
            ),
        )

    def _value_reports(
        self, scenario: TeamScenario, scored: Sequence[ScoredEpisode]
    ) -> Sequence[Mapping[str, tuple[float, ...]]]:
        if self.value_offers is None:
            return [{} for _ in scored]
        tables = [read_episode(scenario, one.episode).table for one in scored]
        return self.value_offers(scenario, tables, self.weights)

    def _score_set(
        self, scenario: TeamScenario, outcomes: SimulatedOutcomes, report_set: ReportSet
    ) -> ScoredEpisode:
        record = report_set.governed
        if record is None:
            raise ValueError(f"an episode of {scenario.key} without governance")
        verdict = score_governed(record, outcomes, self.weights)
        plans = list_plans(record, outcomes, verdict.value)
        verdict = self.reward(scenario, record.episode, verdict)
        return ScoredEpisode(episode=open_episode(record), verdict=verdict, plans=plans)


def list_plans(record: GovernedRecord, outcomes: SimulatedOutcomes, last_value: float) -> Plans:
    """The plans of an episode: what was in place after each, and which of them every call worked on.

    Raises:
        ValueError: not every call of ReconcileGPT belongs to a draft.
    """
    values = value_plans(record, outcomes)[: record.chapters[-1].attempt]
    of_call = tuple(
        chapter.attempt
        for chapter in record.chapters
        for draft in chapter.drafts
        for _ in range(draft.num_turns)
    )
    num_calls = len(record.episode.trajectories[RECONCILER].turns)
    if num_calls != len(of_call):
        raise ValueError(f"{num_calls} calls for {len(of_call)} of drafts in {record.thread}")
    return Plans(values=(*values, last_value), of_call=of_call)

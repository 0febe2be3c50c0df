"""Scores the episodes of a step: groups of episodes to groups with the team reward of every episode.

A replayed decision is not voted on: it is scored as if its votes were as right as those on the first
decision on the same reports. With two or more rounds every decision has votes of its own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from scenarios.team import TeamScenario
from simulator.reading import read_episode
from simulator.records import Episode
from simulator.reward import TeamRewardWeights, TeamVerdict, score_episode, with_consensus
from training.rl.credit.offer_values import ValueOffers
from training.rl.records import EpisodeGroup, ReportSet, ScoredEpisode, ScoredGroup, ScoredReportSet

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

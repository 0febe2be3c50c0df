"""Scores governed episodes: the team reward of what the plans brought in the one world of their case.

First reports of all sets stand on the same case, so a credit scheme may value them by the verifier. What
seats write for a re-plan depends on what became of the plan before: nothing compares it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from roles.team import RECONCILER
from scenarios.team import TeamScenario
from simulator.governance.governed_reward import open_episode, score_governed, value_plans
from simulator.governance.outcomes import SimulatedOutcomes
from simulator.governance.record import GovernedRecord
from simulator.reading import read_episode
from simulator.reward import TeamRewardWeights
from training.rl.credit.offer_values import ValueOffers
from training.rl.records import (
    EpisodeGroup,
    Plans,
    ReportSet,
    ScoredEpisode,
    ScoredGroup,
    ScoredReportSet,
)
from training.rl.team.governed_play import WORLD
from training.rl.team.score import Reward


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

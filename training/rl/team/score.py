"""Scores a joint step: groups of episodes to groups with the team reward of every episode.

Under protocol `assess` a replayed decision is not voted on: it is scored as if its votes were as right as
those on the first decision on the same reports. With two or more rounds every decision has votes of its own.

Under protocol `full` the reward is that of what the plans brought in the one world of their case. First
reports of all sets stand on the same case, so a credit scheme may value them by the verifier. What seats
write for a re-plan depends on what became of the plan before: nothing compares it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from roles.team import RECONCILER
from scenarios.team import TeamScenario
from simulator.governance.outcomes import SimulatedOutcomes
from simulator.governance.record import GovernedRecord, open_episode, score_governed, value_plans
from simulator.reading import read_episode
from simulator.records import Episode
from simulator.reward import TeamRewardWeights, score_episode, with_consensus
from training.rl.credit import OfferValues, ValueOffers
from training.rl.records import EpisodeGroup, Plans, ScoredEpisode, ScoredGroup, ScoredReportSet
from training.rl.team.play import WORLD


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamScorer:
    """Scores episodes of either protocol.

    A scored governed episode holds reports, decision and votes of the first plan, which stand on the case as
    it was drawn; its trajectories and its verdict are those of the whole course.
    """

    weights: TeamRewardWeights
    value_offers: ValueOffers | None = None  # what the credit scheme reads of the (first) offers alone

    def score(self, groups: Sequence[EpisodeGroup]) -> list[ScoredGroup]:
        """The groups with a verdict on every episode, and the plans of governed ones.

        Raises:
            ValueError: not every call of ReconcileGPT belongs to a draft.
        """
        return [self._score_group(group) for group in groups]

    def score_validation(self, groups: Sequence[EpisodeGroup]) -> tuple[list[float], dict[str, float]]:
        """The team reward of every case's first episode."""
        return [group.report_sets[0].rewards[0] for group in self.score(groups)], {}

    def _score_group(self, group: EpisodeGroup) -> ScoredGroup:
        case = group.scenario
        scored = [
            self._score_set(case, one.episodes)
            if one.governed is None
            else self._score_course(case, one.governed)
            for one in group.report_sets
        ]
        worths: OfferValues = [{} for _ in scored]
        if self.value_offers is not None:
            tables = [read_episode(case, of_set[0].episode).table for of_set in scored]
            worths = self.value_offers(case, tables, self.weights)
        sets = [
            ScoredReportSet(scored=of_set, counterfactual_rewards=worth)
            for of_set, worth in zip(scored, worths, strict=True)
        ]
        return ScoredGroup(scenario=case, report_sets=tuple(sets))

    def _score_set(self, case: TeamScenario, episodes: Sequence[Episode]) -> tuple[ScoredEpisode, ...]:
        """One without votes takes the consensus of the first one on its reports."""
        verdicts = [score_episode(case, episode, self.weights) for episode in episodes]
        consensus = verdicts[0].consensus
        return tuple(
            ScoredEpisode(
                episode=episode,
                verdict=verdict
                if place == 0 or episode.votes
                else with_consensus(verdict, consensus, self.weights),
            )
            for place, (episode, verdict) in enumerate(zip(episodes, verdicts, strict=True))
        )

    def _score_course(self, case: TeamScenario, record: GovernedRecord) -> tuple[ScoredEpisode, ...]:
        outcomes = SimulatedOutcomes(case, seed=WORLD)
        verdict = score_governed(record, outcomes, self.weights)
        plans = list_plans(record, outcomes, verdict.value)
        return (ScoredEpisode(episode=open_episode(record), verdict=verdict, plans=plans),)


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

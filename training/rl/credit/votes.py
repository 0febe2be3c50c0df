"""Advantages of a specialist's votes: those of its report, of the decision voted on, or of the vote itself.

Votes enter the team reward only as the share of right ones: R = V (1 + c C) / (1 + c) - ..., C = right / n.
So a right vote adds V c / ((1 + c) n) to the reward, whatever the report said. Schemes that score reports
with the votes held fixed leave that to the vote's own tokens.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from scenarios.team import TeamScenario
from simulator.reading import read_episode
from simulator.reward import TeamRewardWeights, list_right_votes
from training.rl.credit.estimators import Advantages, Scores
from training.rl.records import ScoredGroup, ScoredReportSet

VoteAdvantages = list[list[tuple[float, ...]]]  # by group, report set, episode; () where the report's hold
Estimate = Callable[[Sequence[Scores]], Advantages]


class VoteCredit(Protocol):
    """Decides which advantage the votes of a specialist carry."""

    def advantages(
        self, role: str, groups: Sequence[ScoredGroup], decisions: VoteAdvantages, estimate: Estimate
    ) -> VoteAdvantages:
        """Advantages of the role's votes on the episodes of every report set.

        Args:
            decisions: advantages of ReconcileGPT's decisions.
        """
        ...


class VotesWithReport:
    """Votes carry the advantage of their report: the episode has one reward for all that was said."""

    def advantages(
        self, role: str, groups: Sequence[ScoredGroup], decisions: VoteAdvantages, estimate: Estimate
    ) -> VoteAdvantages:
        return [[() for _ in group.report_sets] for group in groups]


class VotesWithDecision:
    """Votes carry the advantage of the decision voted on, on every decision."""

    def advantages(
        self, role: str, groups: Sequence[ScoredGroup], decisions: VoteAdvantages, estimate: Estimate
    ) -> VoteAdvantages:
        return decisions


@dataclass(frozen=True, slots=True, kw_only=True)
class VotesAlone:
    """Votes on the first decision are scored by themselves."""

    weights: TeamRewardWeights

    def advantages(
        self, role: str, groups: Sequence[ScoredGroup], decisions: VoteAdvantages, estimate: Estimate
    ) -> VoteAdvantages:
        scores = [vote_scores(role, group, self.weights) for group in groups]
        flat = iter(value for of_group in estimate(scores) for value in of_group)
        return [[(next(flat),) for _ in group.report_sets] for group in groups]


def vote_scores(role: str, group: ScoredGroup, weights: TeamRewardWeights) -> list[float]:
    """One score per report set: the part of this seat's vote on the first decision in the reward.

    A right vote has the group's mean value times c / ((1 + c) n), a wrong or missing one 0. The mean value
    stands for each own one, so that only votes are compared, not decisions.
    """
    value = statistics.fmean(one.first.verdict.value for one in group.report_sets)
    right = value * weights.consensus / ((1 + weights.consensus) * len(group.scenario.seats))
    return [right * _is_right(role, group.scenario, one) for one in group.report_sets]


def _is_right(role: str, scenario: TeamScenario, report_set: ScoredReportSet) -> bool:
    return role in list_right_votes(scenario, read_episode(scenario, report_set.first.episode))

"""Assigns credit: scored groups to scores by a credit scheme, scores to advantages by an estimator."""

from collections.abc import Sequence
from dataclasses import dataclass

from roles.team import RECONCILER
from training.joint.credit.base import CreditScheme
from training.joint.credit.estimators import (
    Advantages,
    Estimator,
    ScoreGroup,
    compare_most_different,
    normalise_role,
)
from training.joint.credit.votes import VoteAdvantages, VoteCredit
from training.joint.records import GroupAdvantages, ScoredGroup, SetAdvantages, Total


@dataclass(frozen=True, slots=True, kw_only=True)
class CreditAssigner:
    """A credit scheme with an estimator and a rule for votes."""

    scheme: CreditScheme
    estimator: Estimator
    votes: VoteCredit
    pools_decisions: bool  # whether ReconcileGPT's decisions are compared over all sets of a scenario
    total: Total  # over all ranks
    trained_sets: int = 0  # sets of a case of which a specialist learns its report; 0: all

    def assign(self, roles: Sequence[str], groups: Sequence[ScoredGroup]) -> dict[str, list[GroupAdvantages]]:
        """Advantages of every role, aligned with the groups; ranks without groups take part, too."""
        decisions = self._decision_advantages(groups)
        return {
            role: self._of_reconciler(decisions)
            if role == RECONCILER
            else self._of_specialist(role, groups, decisions)
            for role in roles
        }

    def _of_reconciler(self, decisions: VoteAdvantages) -> list[GroupAdvantages]:
        return [tuple(SetAdvantages(episodes=one) for one in of_group) for of_group in decisions]

    def _of_specialist(
        self, role: str, groups: Sequence[ScoredGroup], decisions: VoteAdvantages
    ) -> list[GroupAdvantages]:
        reports = self._estimate(
            [
                ScoreGroup(
                    scores=tuple(self.scheme.specialist_scores(role, group.report_sets)),
                    greedy=group.greedy_reward,
                )
                for group in groups
            ],
            self.trained_sets,
        )
        votes = self.votes.advantages(role, groups, decisions, self._estimate)
        return [
            tuple(
                SetAdvantages(report=report, episodes=episodes)
                for report, episodes in zip(of_reports, of_votes, strict=True)
            )
            for of_reports, of_votes in zip(reports, votes, strict=True)
        ]

    def _decision_advantages(self, groups: Sequence[ScoredGroup]) -> VoteAdvantages:
        """Advantage of every decision, by group and set of reports."""
        sets = [one for group in groups for one in group.report_sets if one.is_decided]
        if self.pools_decisions:
            pooled = self._estimate(
                [
                    ScoreGroup(
                        scores=tuple(reward for one in group.report_sets for reward in one.rewards),
                        greedy=group.greedy_reward,
                    )
                    for group in groups
                ]
            )
        else:
            pooled = self._estimate(
                [ScoreGroup(scores=one.rewards, greedy=one.greedy_reward) for one in sets]
            )
        flat = iter(value for of_group in pooled for value in of_group)
        return [
            [tuple(next(flat) for _ in one.scored) if one.is_decided else () for one in group.report_sets]
            for group in groups
        ]

    def _estimate(self, groups: Sequence[ScoreGroup], count: int = 0) -> Advantages:
        advantages = compare_most_different(self.estimator, count)(groups, self.total)
        return normalise_role(advantages, self.total) if self.scheme.normalises_roles else advantages

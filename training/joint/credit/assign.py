"""Assigns credit: scored groups to scores by a credit scheme, scores to advantages by an estimator."""

from collections.abc import Sequence
from dataclasses import dataclass

from roles.team import RECONCILER
from training.joint.credit.estimators import (
    Advantages,
    Estimator,
    Scores,
    compare_most_different,
)
from training.joint.credit.schemes import CreditScheme
from training.joint.credit.votes import VoteAdvantages, VoteCredit
from training.joint.own_scores import score_decision, score_report
from training.joint.records import GroupAdvantages, ScoredGroup, ScoredReportSet, SetAdvantages, Total


@dataclass(frozen=True, slots=True, kw_only=True)
class CreditAssigner:
    """A credit scheme with an estimator and a rule for votes."""

    scheme: CreditScheme
    estimator: Estimator
    votes: VoteCredit
    pools_decisions: bool  # whether ReconcileGPT's decisions are compared over all sets of a scenario
    total: Total  # over all ranks
    trained_sets: int = 0  # sets of a case of which a specialist learns its report; 0: all
    own_weight: float = 0.0  # of the own verified score beside the team's, for reports and decisions

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
            [self._report_scores(role, group) for group in groups],
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
        if self.pools_decisions:
            pooled = self._estimate(
                [
                    [score for one in group.report_sets for score in self._decision_scores(group, one)]
                    for group in groups
                ]
            )
        else:
            pooled = self._estimate(
                [
                    self._decision_scores(group, one)
                    for group in groups
                    for one in group.report_sets
                    if one.is_decided
                ]
            )
        flat = iter(value for of_group in pooled for value in of_group)
        return [
            [tuple(next(flat) for _ in one.scored) if one.is_decided else () for one in group.report_sets]
            for group in groups
        ]

    def _report_scores(self, role: str, group: ScoredGroup) -> tuple[float, ...]:
        scores = self.scheme.specialist_scores(role, group.report_sets)
        if not self.own_weight:
            return tuple(scores)
        return tuple(
            score + self.own_weight * score_report(group.scenario, role, one.first.episode)
            for score, one in zip(scores, group.report_sets, strict=True)
        )

    def _decision_scores(self, group: ScoredGroup, report_set: ScoredReportSet) -> tuple[float, ...]:
        if not self.own_weight:
            return report_set.rewards
        return tuple(
            one.verdict.reward + self.own_weight * score_decision(group.scenario, one.episode)
            for one in report_set.scored
        )

    def _estimate(self, groups: Sequence[Scores], count: int = 0) -> Advantages:
        return compare_most_different(self.estimator, count)(groups, self.total)

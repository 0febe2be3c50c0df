"""Assigns credit: scored groups to scores by a credit scheme, scores to advantages by an estimator."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from roles.team import RECONCILER
from training.learner.rows import TrainingRow
from training.rl.credit.estimators import Advantages, Estimator, Scores
from training.rl.credit.schemes import CreditScheme
from training.rl.credit.votes import VoteAdvantages, VoteCredit
from training.rl.records import GroupAdvantages, ScoredGroup, SetAdvantages, Total
from training.rl.team.rows import make_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class CreditAssigner:
    """A credit scheme with an estimator and a rule for votes."""

    scheme: CreditScheme
    estimator: Estimator
    votes: VoteCredit
    pools_decisions: bool  # whether ReconcileGPT's decisions are compared over all sets of a scenario
    total: Total  # over all ranks

    def assign(self, roles: Sequence[str], groups: Sequence[ScoredGroup]) -> dict[str, list[GroupAdvantages]]:
        """Advantages of every role, aligned with the groups; ranks without groups take part, too."""
        decisions = self._decision_advantages(groups)
        return {
            role: self._of_reconciler(decisions)
            if role == RECONCILER
            else self._of_specialist(role, groups, decisions)
            for role in roles
        }

    def make_rows(
        self, groups: Sequence[ScoredGroup], advantages: Mapping[str, Sequence[GroupAdvantages]]
    ) -> dict[str, list[TrainingRow]]:
        """Every role's training rows with their advantages."""
        return {role: make_rows(role, groups, of_role) for role, of_role in advantages.items()}

    def _of_reconciler(self, decisions: VoteAdvantages) -> list[GroupAdvantages]:
        return [tuple(SetAdvantages(episodes=one) for one in of_group) for of_group in decisions]

    def _of_specialist(
        self, role: str, groups: Sequence[ScoredGroup], decisions: VoteAdvantages
    ) -> list[GroupAdvantages]:
        reports = self._estimate([self.scheme.specialist_scores(role, group.report_sets) for group in groups])
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
        sets = [[one.rewards for one in group.report_sets] for group in groups]
        compared = (
            [[reward for rewards in of_group for reward in rewards] for of_group in sets]
            if self.pools_decisions
            else [rewards for of_group in sets for rewards in of_group]
        )
        flat = iter(value for of_group in self._estimate(compared) for value in of_group)
        return [[tuple(next(flat) for _ in rewards) for rewards in of_group] for of_group in sets]

    def _estimate(self, groups: Sequence[Scores]) -> Advantages:
        return self.estimator(groups, self.total)

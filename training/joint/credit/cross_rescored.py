"""`cross_rescored`: a specialist's report is scored among the partners of every set of its scenario.

This averages out the luck of good partners: n x n scores from n episodes and the decisions on swapped
reports (training/joint/credit/counterfactuals.py).
"""

import statistics
from collections.abc import Sequence

from training.joint.credit.counterfactuals import Counterfactuals, SwappedReports
from training.joint.credit.offer_values import ValueOffers
from training.joint.records import ScoredReportSet


class CrossRescored:
    """Mean team reward of this role's report over all partners that the group sampled."""

    counterfactuals: Counterfactuals = SwappedReports()
    value_offers: ValueOffers | None = None
    pools_decisions = False
    normalises_roles = False
    holds_votes_fixed = True

    def specialist_scores(self, role: str, report_sets: Sequence[ScoredReportSet]) -> list[float]:
        return [statistics.fmean(report_set.counterfactual_rewards[role]) for report_set in report_sets]

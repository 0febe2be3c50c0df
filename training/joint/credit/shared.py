"""`shared`: every specialist gets the team's result, averaged over the decisions on its set of reports."""

import statistics
from collections.abc import Sequence

from training.joint.credit.counterfactuals import Counterfactuals, NoCounterfactuals
from training.joint.credit.offer_values import ValueOffers
from training.joint.records import ScoredReportSet


class Shared:
    """Plain GRPO on the team reward for specialists; ReconcileGPT is compared on the same reports."""

    counterfactuals: Counterfactuals = NoCounterfactuals()
    value_offers: ValueOffers | None = None
    pools_decisions = False
    normalises_roles = False
    holds_votes_fixed = False

    def specialist_scores(self, role: str, report_sets: Sequence[ScoredReportSet]) -> list[float]:
        return [statistics.fmean(report_set.rewards) for report_set in report_sets]

"""`cross_rescored`: a specialist's report is scored among the partners of every set of its scenario.

The luck of having had good partners is averaged out: n x n scores from n episodes, by verifier calls only
where fitted practices decide on the mixed reports (training/joint/credit/counterfactuals.py).
"""

import statistics
from collections.abc import Sequence

from training.joint.credit.base import Counterfactuals, ReportSet


class CrossRescored:
    """Mean team reward of this role's report over all partners that the group sampled."""

    counterfactuals: Counterfactuals = "swaps"
    pools_decisions = False
    normalises_roles = False

    def specialist_scores(self, role: str, report_sets: Sequence[ReportSet]) -> list[float]:
        return [statistics.fmean(report_set.swapped[role]) for report_set in report_sets]

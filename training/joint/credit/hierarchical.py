"""`hierarchical`: everybody is compared only with who acted in the same situation.

ReconcileGPT on the same reports, as under `shared`; a specialist among the same partners: what its report
is worth there, minus what the group's other reports of the same seat would be worth in its place.
"""

import statistics
from collections.abc import Sequence

from training.joint.credit.base import Counterfactuals, ReportSet


class Hierarchical:
    """Own report among own partners, minus the mean of all the group's reports of this role among them."""

    counterfactuals: Counterfactuals = "swaps"
    pools_decisions = False
    normalises_roles = False

    def specialist_scores(self, role: str, report_sets: Sequence[ReportSet]) -> list[float]:
        return [
            own.swapped[role][place] - statistics.fmean(other.swapped[role][place] for other in report_sets)
            for place, own in enumerate(report_sets)
        ]

"""`shared`: every specialist gets the team's result, averaged over the decisions on its set of reports."""

from collections.abc import Sequence

from training.joint.credit.base import Counterfactuals, ReportSet


class Shared:
    """Plain GRPO on the team reward for specialists; ReconcileGPT is compared on the same reports."""

    counterfactuals: Counterfactuals = "none"
    pools_decisions = False
    normalises_roles = False

    def specialist_scores(self, role: str, report_sets: Sequence[ReportSet]) -> list[float]:
        return [report_set.mean_reward for report_set in report_sets]

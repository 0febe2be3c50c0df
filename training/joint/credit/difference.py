"""`difference`: a specialist gets what the team result lost when its report was left out.

Source: difference rewards (Wolpert and Tumer 2002), as in COMA (arXiv:1705.08926) with an explicit default
action ("no report") in place of a learned critic.
"""

from collections.abc import Sequence

from training.joint.credit.base import Counterfactuals, ReportSet


class Difference:
    """Team reward minus the team reward without this role's report."""

    counterfactuals: Counterfactuals = "absences"
    pools_decisions = False
    normalises_roles = False

    def specialist_scores(self, role: str, report_sets: Sequence[ReportSet]) -> list[float]:
        return [report_set.mean_reward - report_set.without[role] for report_set in report_sets]

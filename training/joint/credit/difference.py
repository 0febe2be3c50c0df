"""`difference`: a specialist gets what the team result lost when its report was left out.

Source: difference rewards (Wolpert and Tumer 2002), as in COMA (arXiv:1705.08926) with an explicit default
action ("no report") in place of a learned critic.
"""

import statistics
from collections.abc import Sequence

from training.joint.credit.counterfactuals import AbsentReports, Counterfactuals
from training.joint.records import ScoredReportSet


class Difference:
    """Team reward minus the team reward without this role's report."""

    counterfactuals: Counterfactuals = AbsentReports()
    pools_decisions = False
    normalises_roles = False
    holds_votes_fixed = False

    def specialist_scores(self, role: str, report_sets: Sequence[ScoredReportSet]) -> list[float]:
        return [
            statistics.fmean(report_set.rewards) - report_set.counterfactual_rewards[role][0]
            for report_set in report_sets
        ]

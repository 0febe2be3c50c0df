"""`role_normalised`: the team's result, in units of each role's own spread.

Source: per-agent normalisation as in Dr.MAS (arXiv:2602.08847). ReconcileGPT's differences are smaller and
rarer than the specialists'; without this the roles' steps have unlike sizes.
"""

from collections.abc import Sequence

from training.joint.credit.base import Counterfactuals, ReportSet


class RoleNormalised:
    """`shared`, then divided by the root mean square of the role's own advantages over the step."""

    counterfactuals: Counterfactuals = "none"
    pools_decisions = False
    normalises_roles = True

    def specialist_scores(self, role: str, report_sets: Sequence[ReportSet]) -> list[float]:
        return [report_set.mean_reward for report_set in report_sets]

"""`role_normalised`: the team's result, in units of each role's own spread.

Source: per-agent normalisation as in Dr.MAS (arXiv:2602.08847). ReconcileGPT's differences are smaller and
rarer than the specialists'; without this the roles' steps have unlike sizes.
"""

import statistics
from collections.abc import Sequence

from training.joint.credit.counterfactuals import Counterfactuals, NoCounterfactuals
from training.joint.credit.offer_values import ValueOffers
from training.joint.records import ScoredReportSet


class RoleNormalised:
    """`shared`, then divided by the root mean square of the role's own advantages over the step."""

    counterfactuals: Counterfactuals = NoCounterfactuals()
    value_offers: ValueOffers | None = None
    pools_decisions = False
    normalises_roles = True
    holds_votes_fixed = False

    def specialist_scores(self, role: str, report_sets: Sequence[ScoredReportSet]) -> list[float]:
        return [statistics.fmean(report_set.rewards) for report_set in report_sets]

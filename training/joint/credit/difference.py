"""`difference`: a specialist gets what the team's result is above the best without its offers.

Source: difference rewards (Wolpert and Tumer 2002), as in COMA (arXiv:1705.08926) with "no report" as the
default action. What the others' offers alone allow is worked out by the verifier; it does not depend on the
specialist's own report, so it changes the variance of the score, never its expectation.
"""

import statistics
from collections.abc import Sequence

from training.joint.credit.counterfactuals import Counterfactuals, NoCounterfactuals
from training.joint.credit.offer_values import ValueOffers, each_set_alone, value_without
from training.joint.records import ScoredReportSet


class Difference:
    """Team reward minus the reward of the best plan by the other seats' reports."""

    counterfactuals: Counterfactuals = NoCounterfactuals()
    value_offers: ValueOffers | None = staticmethod(each_set_alone(value_without))
    pools_decisions = False
    normalises_roles = False
    holds_votes_fixed = False

    def specialist_scores(self, role: str, report_sets: Sequence[ScoredReportSet]) -> list[float]:
        return [
            statistics.fmean(report_set.rewards) - report_set.counterfactual_rewards[role][0]
            for report_set in report_sets
        ]

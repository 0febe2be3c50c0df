"""`shapley`: a specialist gets the exact Shapley value of its offers.

All coalitions of seats are valued by the verifier from their offers; nothing is generated, and ReconcileGPT's
own decision does not enter. Source: Shapley values as credit in Shapley Q-value (arXiv:1907.05707).
"""

from collections.abc import Sequence

from training.joint.credit.counterfactuals import Counterfactuals, NoCounterfactuals
from training.joint.credit.offer_values import ValueOffers, each_set_alone, shapley_values
from training.joint.records import ScoredReportSet


class Shapley:
    """Mean gain that the seat's offers bring to the best plan, over all orders of speaking."""

    counterfactuals: Counterfactuals = NoCounterfactuals()
    value_offers: ValueOffers | None = staticmethod(each_set_alone(shapley_values))
    pools_decisions = False
    normalises_roles = False
    holds_votes_fixed = True

    def specialist_scores(self, role: str, report_sets: Sequence[ScoredReportSet]) -> list[float]:
        return [report_set.counterfactual_rewards[role][0] for report_set in report_sets]

"""`hierarchical`: every role is compared with acts in the same situation only.

ReconcileGPT on the same reports, as under `shared`; a specialist among the same partners: the reward of its
report there, minus the mean reward of the group's reports of the same seat in its place.
"""

import statistics
from collections.abc import Sequence

from training.joint.credit.counterfactuals import Counterfactuals, SwappedReports
from training.joint.credit.offer_values import ValueOffers
from training.joint.records import ScoredReportSet


class Hierarchical:
    """Own report among own partners, minus the mean of all the group's reports of this role among them."""

    counterfactuals: Counterfactuals = SwappedReports()
    value_offers: ValueOffers | None = None
    pools_decisions = False
    normalises_roles = False
    holds_votes_fixed = True

    def specialist_scores(self, role: str, report_sets: Sequence[ScoredReportSet]) -> list[float]:
        rewards = [one.counterfactual_rewards[role] for one in report_sets]
        return [
            own[place] - statistics.fmean(other[place] for other in rewards)
            for place, own in enumerate(rewards)
        ]

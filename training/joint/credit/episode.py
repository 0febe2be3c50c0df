"""`episode`: every role gets its own full episode's reward, compared over the whole scenario.

GRPO as if the team were one agent (arXiv:2402.03300): what the other schemes are measured against.
"""

from collections.abc import Sequence

from training.joint.credit.counterfactuals import Counterfactuals, NoCounterfactuals
from training.joint.credit.offer_values import ValueOffers
from training.joint.records import ScoredReportSet


class Episode:
    """The reward of the first decision; ReconcileGPT's decisions are compared whatever their reports were."""

    counterfactuals: Counterfactuals = NoCounterfactuals()
    value_offers: ValueOffers | None = None
    pools_decisions = True
    normalises_roles = False
    holds_votes_fixed = False

    def specialist_scores(self, role: str, report_sets: Sequence[ScoredReportSet]) -> list[float]:
        return [report_set.rewards[0] for report_set in report_sets]

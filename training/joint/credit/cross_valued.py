"""`cross_valued`: as `cross_rescored`, with the verifier in ReconcileGPT's place.

A report is worth the mean reward of the best plan that it allows together with the partners of every set of
its scenario. Nothing is generated, and neither the luck of good partners nor a poor decision enters.
"""

from training.joint.credit.counterfactuals import Counterfactuals, NoCounterfactuals
from training.joint.credit.cross_rescored import CrossRescored
from training.joint.credit.offer_values import ValueOffers, cross_values


class CrossValued(CrossRescored):
    """Mean reward of the best plan by this role's report, over all partners that the group sampled."""

    counterfactuals: Counterfactuals = NoCounterfactuals()
    value_offers: ValueOffers | None = staticmethod(cross_values)

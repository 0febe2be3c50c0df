"""The contract of a credit scheme."""

from collections.abc import Sequence
from typing import Protocol

from training.joint.credit.counterfactuals import Counterfactuals
from training.joint.credit.offer_values import ValueOffers
from training.joint.records import ScoredReportSet


class CreditScheme(Protocol):
    """Turns the report sets of ONE scenario into one score per set; an estimator makes advantages of them.

    ReconcileGPT's scores are the rewards of its decisions, compared on the same reports.
    """

    counterfactuals: Counterfactuals  # decisions to play besides the step's own
    value_offers: (
        ValueOffers | None
    )  # worth of a set's offers by seat, which it reads as counterfactual rewards
    pools_decisions: bool  # whether ReconcileGPT is compared over all sets of a scenario instead
    normalises_roles: bool  # whether a role's advantages are divided by their own spread over the step
    holds_votes_fixed: bool  # whether reports are scored with the votes held fixed: votes have own scores

    def specialist_scores(self, role: str, report_sets: Sequence[ScoredReportSet]) -> list[float]:
        """One score per report set, for the role's report in it."""
        ...

"""Credit schemes: how the team's result becomes one score for each report of a seat.

A scheme scores a seat's reports of ONE case, one in each set of reports; an estimator makes advantages of the
scores. ReconcileGPT needs no scheme: its scores are the rewards of its decisions, compared on the same
reports. The verifier values offers (offer_values.py), and nothing is generated for credit.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Protocol

from training.rl.credit.offer_values import ValueOffers, cross_values, each_set_alone, shapley_values
from training.rl.records import ScoredReportSet


class CreditScheme(Protocol):
    """Turns the report sets of one case into one score per set for a seat's report in it."""

    value_offers: ValueOffers | None  # fills in the sets' `counterfactual_rewards`; None where it reads none
    holds_votes_fixed: bool  # whether scores leave votes out of account: votes then have scores of their own

    def specialist_scores(self, role: str, report_sets: Sequence[ScoredReportSet]) -> list[float]:
        """One score per report set, for the role's report in it."""
        ...


class Shared:
    """`shared`: the team's result, the mean reward of the decisions on the set. GRPO on the team reward."""

    value_offers: ValueOffers | None = None
    holds_votes_fixed = False

    def specialist_scores(self, role: str, report_sets: Sequence[ScoredReportSet]) -> list[float]:
        return [statistics.fmean(report_set.rewards) for report_set in report_sets]


class CrossValued:
    """`cross_valued`: the mean reward of the best plans by the report and the partners of every set.

    In a case with n sets the verifier values a seat's report n times, each time together with the other
    seats' reports of one of the sets, its own among them. All reports of the seat so meet the same
    partners: the luck of good partners does not enter, nor does a poor decision of ReconcileGPT.
    """

    value_offers: ValueOffers | None = staticmethod(cross_values)
    holds_votes_fixed = True

    def specialist_scores(self, role: str, report_sets: Sequence[ScoredReportSet]) -> list[float]:
        return [statistics.fmean(report_set.counterfactual_rewards[role]) for report_set in report_sets]


class Shapley:
    """`shapley`: the exact Shapley value of the report among the reports of its set.

    It is the mean gain that the seat's offers bring to the best plan over all orders of speaking. The
    verifier values every coalition of seats. Source: Shapley Q-value (arXiv:1907.05707).
    """

    value_offers: ValueOffers | None = staticmethod(each_set_alone(shapley_values))
    holds_votes_fixed = True

    def specialist_scores(self, role: str, report_sets: Sequence[ScoredReportSet]) -> list[float]:
        return [report_set.counterfactual_rewards[role][0] for report_set in report_sets]


SCHEMES: Mapping[str, type[CreditScheme]] = {
    "shared": Shared,
    "cross_valued": CrossValued,
    "shapley": Shapley,
}

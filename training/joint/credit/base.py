"""What a credit scheme is given and what it returns."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

Counterfactuals = Literal["none", "absences", "swaps"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSet:
    """One set of specialist reports and the team rewards of the decisions taken on exactly these reports.

    Example: ReportSet(rewards=(0.8, 0.2), without={"cto": 0.1, "coo": 0.5, "risk": 0.5, "cost": 0.5})
    """

    rewards: tuple[float, ...]  # team reward of each decision on this set, 2 or more
    without: Mapping[str, float] = field(default_factory=dict)  # role -> team reward without its report
    # role -> team reward of its report of this set among the partners of every set of the scenario, in order
    swapped: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def mean_reward(self) -> float:
        """Expected team reward of these reports under the present reconciler."""
        return statistics.fmean(self.rewards)


class CreditScheme(Protocol):
    """Turns the report sets of ONE scenario into one score per set; an estimator makes advantages of them.

    ReconcileGPT's scores are the rewards of its decisions, compared on the same reports.
    """

    counterfactuals: Counterfactuals  # what must be played or re-scored: `without` or `swapped`
    pools_decisions: bool  # whether ReconcileGPT is compared over all sets of a scenario instead
    normalises_roles: bool  # whether a role's advantages are divided by their own spread over the step

    def specialist_scores(self, role: str, report_sets: Sequence[ReportSet]) -> list[float]:
        """One score per report set, for the role's report in it."""
        ...

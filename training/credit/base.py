"""What a credit scheme is given and what it returns."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

LEAST_SPREAD = 1e-12  # of a group's rewards; less is the rounding of their sums


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSet:
    """One set of specialist reports and the team rewards of the decisions taken on exactly these reports.

    Example: ReportSet(rewards=(0.8, 0.2), without={"cto": 0.1, "coo": 0.5, "risk": 0.5, "cost": 0.5})
    """

    rewards: tuple[float, ...]  # team reward of each decision on this set, 2 or more
    without: Mapping[str, float]  # role -> team reward with its report left out; empty where not played

    @property
    def mean_reward(self) -> float:
        """Expected team reward of these reports under the present reconciler."""
        return statistics.fmean(self.rewards)


class CreditScheme(Protocol):
    """Turns the report sets of ONE scenario into advantages."""

    needs_counterfactuals: bool  # whether `ReportSet.without` must be played

    def specialist_advantages(self, role: str, report_sets: Sequence[ReportSet]) -> list[float]:
        """One advantage per report set, for the role's report in it."""
        ...


def reconciler_advantages(report_set: ReportSet) -> list[float]:
    """One advantage per decision: its reward minus the mean over decisions on the same reports.

    The reports being fixed, nothing but the decision differs (hierarchical grouping); equal rewards: zeros.
    """
    return centre(report_set.rewards)


def centre(rewards: Sequence[float]) -> list[float]:
    """Rewards minus their mean, not divided by a standard deviation; exactly zero where all are equal.

    Raises:
        ValueError: fewer than two rewards.
    """
    if len(rewards) < 2:
        raise ValueError(f"a group needs at least 2 rewards to compare, got {len(rewards)}")
    if max(rewards) - min(rewards) < LEAST_SPREAD:
        return [0.0] * len(rewards)
    mean = statistics.fmean(rewards)
    return [reward - mean for reward in rewards]

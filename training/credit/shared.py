"""`shared`: every specialist gets the team's result, relative to the other report sets of the scenario."""

from collections.abc import Sequence

from training.credit.base import ReportSet, centre


class Shared:
    """Plain GRPO on the team reward, averaged over the decisions on each set of reports."""

    needs_counterfactuals = False

    def specialist_advantages(self, role: str, report_sets: Sequence[ReportSet]) -> list[float]:
        return centre([report_set.mean_reward for report_set in report_sets])

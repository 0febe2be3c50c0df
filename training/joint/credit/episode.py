"""`episode`: every role gets its own full episode's reward, compared over the whole scenario.

GRPO as if the team were one agent (arXiv:2402.03300): what the other schemes are measured against.
"""

from collections.abc import Sequence

from training.joint.credit.base import Counterfactuals, ReportSet


class Episode:
    """The reward of the first decision; ReconcileGPT's decisions are compared whatever their reports were."""

    counterfactuals: Counterfactuals = "none"
    pools_decisions = True
    normalises_roles = False

    def specialist_scores(self, role: str, report_sets: Sequence[ReportSet]) -> list[float]:
        return [report_set.rewards[0] for report_set in report_sets]

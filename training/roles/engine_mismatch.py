"""Engine against learner in GRPO: measured over every step's tokens, and corrected per call where asked to.

TRL takes the learner's own log-probabilities for those that the sample was drawn with. Here the engine's
are what counts: the advantage of every token of a call is multiplied by min(learner / engine, cap), the
learner being the one that TRL clips against. The weights have no gradient.
"""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from training.learner.importance import MismatchSums


def weigh_calls(
    gap: Float[Tensor, "rows tokens"], own: Int[Tensor, "rows tokens"], *, cap: float
) -> Float[Tensor, "rows tokens"]:
    """min(exp(sum of the gaps of a call), cap) on each of its tokens, 1 elsewhere.

    `gap` is log learner - log engine. A call is a stretch of own tokens: observations stand between calls.
    """
    is_own = own.bool()
    first = is_own & ~torch.nn.functional.pad(is_own, (1, 0))[:, :-1]
    number = first.flatten().cumsum(0).reshape(gap.shape)  # of the call, from 1, over all rows
    kept = torch.where(is_own, gap, torch.zeros_like(gap))
    sums = torch.zeros(int(number.max()) + 1, dtype=gap.dtype, device=gap.device)
    sums = sums.index_add(0, number[is_own], kept[is_own])
    return torch.where(is_own, sums.exp().clamp(max=cap)[number], torch.ones_like(gap))


class EngineMismatch:
    """To be mixed in before a GRPO trainer; rollouts bring the engine's log-probabilities."""

    importance_cap: float | None = None  # of a call's weight; None corrects nothing

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._gaps = MismatchSums()  # of the present step
        self._inputs: dict[str, Any] | None = None  # of the loss that is being computed

    def _compute_loss(self, model: Any, inputs: Mapping[str, Any]) -> Any:
        self._inputs = dict(inputs)
        try:
            return super()._compute_loss(model, self._inputs)  # type: ignore[misc]
        finally:
            self._inputs = None

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        found = super()._get_per_token_logps_and_entropies(*args, **kwargs)  # type: ignore[misc]
        if self._inputs is not None and "sampling_per_token_logps" in self._inputs:
            self._take(self._inputs, found[0].detach())
        return found

    def _take(self, inputs: dict[str, Any], learner: Tensor) -> None:
        """Measure, and put weighted advantages where the loss will read them."""
        engine = inputs["sampling_per_token_logps"].to(learner)
        own = inputs["completion_mask"] * inputs.get("tool_mask", 1)
        self._gaps.add(learner[own.bool()], engine[own.bool()])
        if self.importance_cap is None:
            return
        gap = inputs.get("old_per_token_logps", learner) - engine
        advantages = inputs["advantages"]
        if advantages.dim() == 1:
            advantages = advantages[:, None]
        inputs["advantages"] = advantages * weigh_calls(gap, own, cap=self.importance_cap)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if self._gaps.count:
            found = self._gaps.result()
            self._gaps = MismatchSums()
            logs["mismatch_mean"], logs["mismatch_max"] = found.mean, found.largest
            logs["mismatch_kl"], logs["effective_share"] = found.kl, found.effective_share
        super().log(logs, start_time)  # type: ignore[misc]

"""Measures and corrects the mismatch between the learner's policy and the engine that sampled.

The engine may compute in another precision or be some steps behind. Its logprobs are the truth about how
likely the sample was; the learner's own are what has a gradient.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from training.learner.packing import RowBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """Learner against engine over the trained tokens.

    Example: Mismatch(mean=0.002, largest=0.04, kl=1e-5, effective_share=0.999)
    """

    mean: float = 0.0  # mean |log learner - log engine|
    largest: float = 0.0
    kl: float = 0.0  # KL(engine || learner) per token, k3
    effective_share: float = 1.0  # effective sample size over tokens, (sum w)^2 / (n sum w^2)


EXACT = Mismatch()


@dataclass(slots=True)
class MismatchSums:
    """Adds up a Mismatch over micro-batches, on the device: the host waits for it in `result` alone."""

    count: int = 0
    sums: Float[Tensor, " 4"] | None = None  # of |gaps|, k3, weights and their squares
    largest: Float[Tensor, ""] | None = None

    def add(self, logprobs: Float[Tensor, " own"], sampling_logprobs: Float[Tensor, " own"]) -> None:
        """Take in some tokens."""
        if not len(logprobs):
            return
        gap = (logprobs - sampling_logprobs).double()
        weights = gap.exp()
        self.count += len(gap)
        found = torch.stack([gap.abs(), weights - 1 - gap, weights, weights.square()]).sum(1)
        most = gap.abs().max()
        self.sums = found if self.sums is None else self.sums + found
        self.largest = most if self.largest is None else torch.maximum(self.largest, most)

    def result(self) -> Mismatch:
        """The means over all tokens so far."""
        if self.sums is None or self.largest is None:
            return EXACT
        absolute, kl, weights, squares, largest = torch.cat([self.sums, self.largest[None]]).tolist()
        share = weights**2 / (self.count * squares) if squares else math.nan
        return Mismatch(
            mean=absolute / self.count,
            largest=largest,
            kl=kl / self.count,
            effective_share=share,
        )


def ratios_of(
    logprobs: Float[Tensor, " own"],
    sampling_logprobs: Float[Tensor, " own"],
    row_of: Int[Tensor, " own"],
    num_rows: int,
    *,
    level: Literal["token", "sequence"],
) -> Float[Tensor, " own"]:
    """Probability ratios per token: its own, or the geometric mean over its row (GSPO, arXiv:2507.18071)."""
    gap = logprobs - sampling_logprobs
    if level == "token":
        return torch.exp(gap)
    return torch.exp(_mean_within(gap, row_of, num_rows)[row_of])


def call_weights(
    logprobs: Float[Tensor, " own"], batch: RowBatch, *, level: Literal["token", "call"], cap: float
) -> Float[Tensor, " own"]:
    """Truncated importance weights min(learner / engine, cap) per token, or of whole calls.

    A call is one completion of the engine: its weight is the product over its tokens.
    """
    gap = logprobs - batch.sampling_logprobs
    if level == "call":
        gap = _sum_within(gap, batch.call_of, batch.num_calls)[batch.call_of]
    return torch.exp(gap).clamp(max=cap)


def _sum_within(values: Tensor, group_of: Tensor, groups: int) -> Tensor:
    return torch.zeros(groups, dtype=values.dtype, device=values.device).index_add(0, group_of, values)


def _mean_within(values: Tensor, group_of: Tensor, groups: int) -> Tensor:
    counts = _sum_within(torch.ones_like(values), group_of, groups)
    return _sum_within(values, group_of, groups) / counts.clamp(min=1)

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
    """Adds up a Mismatch over micro-batches."""

    count: int = 0
    absolute: float = 0.0
    largest: float = 0.0
    kl: float = 0.0
    weights: float = 0.0
    squares: float = 0.0

    def add(self, logprobs: Float[Tensor, " own"], sampling_logprobs: Float[Tensor, " own"]) -> None:
        """Take in some tokens."""
        if not len(logprobs):
            return
        gap = (logprobs - sampling_logprobs).double()
        weights = gap.exp()
        self.count += len(gap)
        self.absolute += float(gap.abs().sum())
        self.largest = max(self.largest, float(gap.abs().max()))
        self.kl += float((weights - 1 - gap).sum())
        self.weights += float(weights.sum())
        self.squares += float(weights.square().sum())

    def result(self) -> Mismatch:
        """The means over all tokens so far."""
        if not self.count:
            return EXACT
        share = self.weights**2 / (self.count * self.squares) if self.squares else math.nan
        return Mismatch(
            mean=self.absolute / self.count,
            largest=self.largest,
            kl=self.kl / self.count,
            effective_share=share,
        )


def ratios_of(
    logprobs: Float[Tensor, " own"],
    sampling_logprobs: Float[Tensor, " own"],
    row_of: Int[Tensor, " own"],
    *,
    level: Literal["token", "sequence"],
) -> Float[Tensor, " own"]:
    """Probability ratios per token: its own, or the geometric mean over its row (GSPO, arXiv:2507.18071)."""
    gap = logprobs - sampling_logprobs
    if level == "token":
        return torch.exp(gap)
    return torch.exp(_mean_within(gap, row_of)[row_of])


def call_weights(
    logprobs: Float[Tensor, " own"], batch: RowBatch, *, level: Literal["token", "call"], cap: float
) -> Float[Tensor, " own"]:
    """Truncated importance weights min(learner / engine, cap) per token, or of whole calls.

    A call is one completion of the engine: its weight is the product over its tokens.
    """
    gap = logprobs - batch.sampling_logprobs
    if level == "call" and len(gap):
        gap = _sum_within(gap, batch.call_of)[batch.call_of]
    return torch.exp(gap).clamp(max=cap)


def _sum_within(values: Tensor, group_of: Tensor) -> Tensor:
    groups = int(group_of.max()) + 1
    return torch.zeros(groups, dtype=values.dtype, device=values.device).index_add(0, group_of, values)


def _mean_within(values: Tensor, group_of: Tensor) -> Tensor:
    return _sum_within(values, group_of) / _sum_within(torch.ones_like(values), group_of).clamp(min=1)

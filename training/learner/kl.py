"""KL divergence of the policy from a reference: estimators per token, and the controller of its weight.

d = log policy - log reference at a sampled token. k1 = d, k2 = d^2 / 2, k3 = exp(-d) - 1 + d
(http://joschu.net/blog/kl-approx.html). As losses: the derivative of k1 itself has mean zero, so k1 enters
as a penalty on the sampled token, weighted by its ratio; k2 has the gradient of KL(policy || reference) on
policy; k3 is what GRPO uses, with a biased gradient; k3_ratio is k3 times the ratio, whose gradient is
unbiased (arXiv:2512.02556).
"""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

KLKind = Literal["k1", "k2", "k3", "k3_ratio"]
HORIZON = 10.0  # steps in which the controller answers a full error
LARGEST_ERROR = 0.2  # of the target, beyond which it answers no stronger


def estimate_kl(
    kind: KLKind, logprobs: Float[Tensor, " own"], reference: Float[Tensor, " own"]
) -> Float[Tensor, " own"]:
    """Per-token estimate of KL(policy || reference); k2 and k3 are >= 0."""
    difference = logprobs - reference
    if kind == "k1":
        return difference
    if kind == "k2":
        return difference.square() / 2
    return torch.exp(-difference) - 1 + difference


def kl_loss(
    kind: KLKind,
    logprobs: Float[Tensor, " own"],
    reference: Float[Tensor, " own"],
    sampling_logprobs: Float[Tensor, " own"],
) -> tuple[Float[Tensor, " own"], Float[Tensor, " own"]]:
    """Per token: what enters the loss (its gradient pulls towards the reference), and the estimate itself."""
    estimate = estimate_kl(kind, logprobs, reference)
    if kind in ("k2", "k3"):
        return estimate, estimate.detach()
    ratio = torch.exp(logprobs - sampling_logprobs)
    return ratio * (estimate.detach() if kind == "k1" else estimate), estimate.detach()


class KLController:
    """The weight of the KL term of one role: fixed, or moved so that the KL per token stays at a target.

    Source: arXiv:1909.08593, section 2.2.
    """

    def __init__(self, coefficient: float, target: float = 0.0) -> None:
        self.coefficient, self.target = coefficient, target

    def update(self, kl: float) -> float:
        """Take in the KL per token of one step; returns the weight for the next."""
        if self.target > 0:
            error = max(-LARGEST_ERROR, min(LARGEST_ERROR, kl / self.target - 1))
            self.coefficient *= 1 + error / HORIZON
        return self.coefficient

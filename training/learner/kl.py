"""KL divergence of the policy from a reference, estimated per token: k3 = exp(-d) - 1 + d, as in GRPO.

d = log policy - log reference at a sampled token. k3 is never below 0, and its mean under the policy is the
divergence (http://joschu.net/blog/kl-approx.html).
"""

import torch
from jaxtyping import Float
from torch import Tensor


def estimate_kl(logprobs: Float[Tensor, " own"], reference: Float[Tensor, " own"]) -> Float[Tensor, " own"]:
    """Per-token estimate of KL(policy || reference); as a loss it pulls towards the reference."""
    difference = logprobs - reference
    return torch.exp(-difference) - 1 + difference

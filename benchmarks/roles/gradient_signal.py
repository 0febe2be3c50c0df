"""Measures how much of a GRPO gradient is signal: whether groups of rollouts pull the weights the same way.

    python -m benchmarks.roles.gradient_signal runs/smollm2 --role cto --stage sft --groups 8

Plays groups of the size that the run trains with, and computes the policy gradient of each group by itself
(advantage: reward - group mean; means over a row's own tokens and over rows). Groups are independent, so that
the mean dot product of two different groups' gradients estimates the squared length of the true gradient, and
what is left of a group's own squared length is noise. A step on n groups has as much signal as noise where
n = noise / signal. The cosine of what one half of the groups says, as it is and as Adam would go with some
epsilon, with what the other half says, tells which epsilon a step should have.
"""

import sys
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from benchmarks.roles.run_plays import load
from simulator.agents.solo import SoloEpisode
from training.learner.rows import TrainingRow, pad_rows
from training.learner.token_logprobs import token_logprobs
from training.rl.solo.play import episode_reward

FIRST_SCENARIO = 5_000  # of the training split: behind demonstrations, before GRPO's
EPSILONS = (1e-6, 1e-5, 1e-4, 1e-3)


def main(arguments: Sequence[str]) -> int:
    """Play, differentiate, and print a line per group and some of all."""
    plays = load(__doc__, arguments)
    size = plays.grpo.group_size
    episodes = plays.play("train", FIRST_SCENARIO, seed=1, stream="snr")
    gradients = []
    for start in range(0, len(episodes), size):
        group = episodes[start : start + size]
        rewards = torch.tensor([episode_reward(one, plays.grpo)["total"] for one in group])
        own = torch.tensor([one.trajectory.num_own for one in group])
        advantages = (rewards - rewards.mean()) / own / size
        gradients.append(group_gradient(plays.model, group, advantages, plays.temperature))
        shown = " ".join(f"{reward:.2f}" for reward in rewards.tolist())
        print(f"rewards {shown}: length of the gradient {gradients[-1].norm():.3g}", flush=True)
    found = torch.stack(gradients)
    signal, noise, cosine = split_signal(found)
    needed = f"{noise / signal:,.0f}" if signal > 0 else "unknown: no signal in these"
    print(
        f"{plays.stage}/{plays.role}: {len(found)} groups of {size}, mean cosine of two groups"
        f" {cosine:+.3f}, squared lengths: signal {signal:.3g}, noise of a group {noise:.3g};"
        f" groups per step for as much signal as noise: {needed}"
    )
    by_epsilon = ", ".join(f"{half_cosine(found, epsilon):+.3f} ({epsilon:g})" for epsilon in EPSILONS)
    print(f"cosine of one half with the other: {half_cosine(found):+.3f}; by Adam's epsilon: {by_epsilon}")
    return 0


def group_gradient(
    model: Any, group: Sequence[SoloEpisode], advantages: Tensor, temperature: float
) -> Tensor:
    """Gradient of the sum of advantage x log-probability of the own tokens, (trained weights,).

    `temperature`: that the group was sampled at.
    """
    texts = [(one.trajectory.token_ids, one.trajectory.loss_mask) for one in group]
    return text_gradient(model, texts, advantages.tolist(), temperature)


def text_gradient(
    model: Any,
    texts: Sequence[tuple[Sequence[int], Sequence[int]]],
    weights: Sequence[float],
    temperature: float,
) -> Tensor:
    """The same of texts, each its token ids and a mask with 1 on own tokens, by their weights."""
    trained = [one for one in model.parameters() if one.requires_grad]
    model.zero_grad(set_to_none=True)
    for (ids, own), weight in zip(texts, weights, strict=True):
        if not weight:
            continue
        row = TrainingRow(
            role="",
            token_ids=tuple(ids),
            loss_mask=tuple(own),
            sampling_logprobs=(0.0,) * len(ids),
            advantage=weight,
        )
        logprobs, _ = token_logprobs(model, pad_rows([row]), temperature=temperature)
        (weight * logprobs.sum()).backward()  # type: ignore[no-untyped-call]
    return torch.cat(
        [torch.zeros(one.numel()) if one.grad is None else one.grad.flatten() for one in trained]
    )


def split_signal(gradients: Tensor) -> tuple[float, float, float]:
    """Of (groups, weights): squared length of the common part, of the rest of a group, mean cosine of two."""
    products = gradients @ gradients.T
    count = len(gradients)
    others = ~torch.eye(count, dtype=torch.bool)
    signal = float(products[others].mean())
    lengths = products.diag().clamp(min=1e-30).sqrt()
    cosine = float((products / lengths[:, None] / lengths[None])[others].mean())
    return signal, float(products.diag().mean()) - signal, cosine


def half_cosine(gradients: Tensor, epsilon: float | None = None) -> float:
    """Mean cosine, over all ways to halve (groups, weights), of a half's direction with the other's mean.

    `epsilon`: the direction is that of Adam, the mean over the root of the mean square and epsilon; None: the
    mean itself.
    """
    count = len(gradients)
    cosines = []
    for half in combinations(range(count), count // 2):
        one = gradients[list(half)]
        other = gradients[[place for place in range(count) if place not in half]].mean(0)
        direction = one.mean(0)
        if epsilon is not None:
            direction = direction / (one.square().mean(0).sqrt() + epsilon)
        cosines.append(torch.nn.functional.cosine_similarity(direction, other, dim=0))
    return float(torch.stack(cosines).mean())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""How much of a GRPO gradient is signal: whether groups of rollouts pull a role's weights the same way.

    python -m benchmarks.roles.gradient_signal runs/smollm2 --role cto --stage sft --groups 8

Plays groups of the size that the run trains with, and computes the policy gradient of each group by itself
(advantage: reward - group mean, summed over own tokens). Groups are independent, so that the mean dot product
of two different groups' gradients estimates the squared length of the true gradient, and what is left of a
group's own squared length is noise. A step on n groups has as much signal as noise where n = noise / signal.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from roles.registry import ROLES
from scenarios.registry import families
from simulator.agents.solo import SoloEpisode, play_solos
from simulator.chat import Chat
from simulator.engines.base import Sampling
from simulator.engines.embedded.engine import TransformersEngine
from training.config.run_config import RunConfig
from training.models.base_model import quiet_libraries
from training.models.weights import load_trainable
from training.roles.rollouts import episode_reward
from training.roles.shared_prompts import completion_logprobs
from training.runs.memory import keep_freed_memory
from training.runs.run_folder import Run
from training.stages.from_config import make_chat
from training.stages.grpo import draw_scenarios

FIRST_SCENARIO = 5_000  # of the training split: behind demonstrations, before GRPO's


def main(arguments: Sequence[str]) -> int:
    """Play, differentiate, and print a line per group and one of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--role", choices=list(ROLES), default="cto")
    parser.add_argument("--stage", default="sft")
    parser.add_argument("--groups", type=int, default=8)
    options = parser.parse_args(arguments)
    quiet_libraries()
    keep_freed_memory()
    run = Run.open(options.run)
    config = run.config
    torch.set_num_threads(config.threads_per_worker)
    model, tokenizer = load_trainable(run, options.stage, options.role)
    size = config.grpo.group_size
    drawn = draw_scenarios(run, options.role, "train", options.groups, FIRST_SCENARIO)
    episodes = _play(config, model, make_chat(tokenizer, config), options.role, drawn)
    gradients = []
    for start in range(0, len(episodes), size):
        group = episodes[start : start + size]
        rewards = torch.tensor([episode_reward(one, config.grpo)["total"] for one in group])
        gradients.append(group_gradient(model, group, rewards - rewards.mean()))
        shown = " ".join(f"{reward:.2f}" for reward in rewards.tolist())
        print(f"rewards {shown}: length of the gradient {gradients[-1].norm():.1f}", flush=True)
    signal, noise, cosine = split_signal(torch.stack(gradients))
    needed = f"{noise / signal:,.0f}" if signal > 0 else "unknown: no signal in these"
    print(
        f"{options.stage}/{options.role}: {len(gradients)} groups of {size}, mean cosine of two groups"
        f" {cosine:+.3f}, squared lengths: signal {signal:.3g}, noise of a group {noise:.3g};"
        f" groups per step for as much signal as noise: {needed}"
    )
    return 0


def group_gradient(model: Any, group: Sequence[SoloEpisode], advantages: Tensor) -> Tensor:
    """Gradient of the sum of advantage x log-probability of the own tokens, (trained weights,)."""
    trained = [one for one in model.parameters() if one.requires_grad]
    model.zero_grad(set_to_none=True)
    for episode, advantage in zip(group, advantages.tolist(), strict=True):
        if not advantage:
            continue
        ids, own = episode.trajectory.token_ids, episode.trajectory.loss_mask
        first = own.index(1)
        logprobs, _ = completion_logprobs(
            model, torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.long), len(ids) - first, 1.0
        )
        (advantage * (logprobs[0] * torch.tensor(own[first:])).sum()).backward()
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


def _play(config: RunConfig, model: Any, chat: Chat, role: str, drawn: Any) -> list[SoloEpisode]:
    engine = TransformersEngine(end_id=chat.end_id, seed=1)
    engine.set_policy(role, model, version=f"{role}@0")
    return asyncio.run(
        play_solos(
            [scenario for scenario in drawn for _ in range(config.grpo.group_size)],
            policy=role,
            engine=engine,
            chat=chat,
            sampling=Sampling(
                temperature=config.grpo.temperature, max_completion_tokens=config.grpo.max_completion_tokens
            ),
            stream="snr",
            max_turns=config.grpo.max_turns,
            max_failed_calls=config.grpo.max_failed_calls,
            families=families(config.model.prompts),
        )
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

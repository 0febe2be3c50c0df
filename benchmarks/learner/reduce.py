"""Seconds of a learner's passes against those of adding its gradients up over ranks: five adapters, one base.

    torchrun --standalone --nproc-per-node 2 -m benchmarks.learner.reduce --tokens 512

The base has the 135M shape with random weights; every rank has `--tokens` own tokens of each role. Gradients
travel after the last pass: their share is what an overlap with the backward passes could save at most.
"""

import argparse
import random
import statistics
import time

import torch

from benchmarks.gpu.sizes import REHEARSAL, build_team
from roles.registry import ROLES
from training.config.rl_config import MarlConfig
from training.learner.fsdp import join_ranks, leave_ranks
from training.learner.learner import backward_team
from training.learner.rows import TrainingRow
from training.models.adapters import role_parameters
from training.models.shapes import SHAPES

LENGTH, PROMPT = 256, 128


def make_rows(tokens: int) -> dict[str, list[TrainingRow]]:
    """Rows of LENGTH tokens, PROMPT of them a prompt, with `tokens` own tokens of each role."""
    rng = random.Random(0)
    return {
        role: [
            TrainingRow(
                role=role,
                token_ids=tuple(rng.randrange(100, 40_000) for _ in range(LENGTH)),
                loss_mask=(0,) * PROMPT + (1,) * (LENGTH - PROMPT),
                sampling_logprobs=(-1.0,) * LENGTH,
                advantage=1.0,
            )
            for _ in range(-(-tokens // (LENGTH - PROMPT)))
        ]
        for role in ROLES
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    ranks = join_ranks()
    torch.set_num_threads(1)
    model = build_team(SHAPES["smollm2-135m"], REHEARSAL, spread=0.02)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora_" in name)
    sets = [role_parameters(model, role) for role in ROLES]
    rows, marl = make_rows(options.tokens), MarlConfig().changed(memory__micro_batch_tokens=1024)
    passes_s, adds_s = [], []
    for _ in range(options.repeats):
        ranks.wait()
        start = time.perf_counter()
        backward_team(model, rows, marl)
        passes_s.append(time.perf_counter() - start)
        ranks.wait()
        start = time.perf_counter()
        ranks.add_gradients(sets, [True] * len(sets))
        adds_s.append(time.perf_counter() - start)
    if ranks.rank == 0:
        count = sum(one.numel() for of_role in sets for one in of_role)
        shown = statistics.median(passes_s), statistics.median(adds_s)
        print(f"{ranks.size} ranks, {count / 1e6:.1f} M gradients, {options.tokens} tokens per role and rank")
        print(
            f"passes {shown[0]:.2f} s, adding up {shown[1]:.3f} s: {100 * shown[1] / sum(shown):.1f} percent"
        )
    leave_ranks(ranks)


if __name__ == "__main__":
    main()

"""Seconds per rollout of a run's role, played as GRPO plays a batch: groups of equal prompts.

    python -m benchmarks.roles.play_speed runs/smollm2 --role cto --stage sft --groups 8

Prints time, tokens, the engine's passes and a hash of all transcripts: two versions of the engine that print
the same hash said the same, token by token.
"""

import hashlib
import statistics
import sys
import time
from collections.abc import Sequence

import torch

from benchmarks.roles.run_plays import load


def main(arguments: Sequence[str]) -> int:
    """Play once, and print a line."""
    plays = load(__doc__, arguments)
    passes: list[int] = []
    plays.model.get_decoder().register_forward_pre_hook(
        lambda _, args, kwargs: passes.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    wall, cpu = time.perf_counter(), time.process_time()
    episodes = plays.play("validation", 0, seed=0, stream="x")
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    count = len(episodes)
    said = repr([episode.trajectory.token_ids for episode in episodes]).encode()
    own = statistics.fmean(episode.trajectory.num_own for episode in episodes)
    total = statistics.fmean(len(episode.trajectory.token_ids) for episode in episodes)
    verified = statistics.fmean(episode.verdict.reward for episode in episodes)
    print(
        f"{plays.stage}/{plays.role}: {count} rollouts, {wall / count:.2f} s and {cpu / count:.2f} CPU s"
        f" each ({torch.get_num_threads()} threads), {own:.0f} own of {total:.0f} tokens,"
        f" {len(passes)} passes over {sum(passes) / count:.0f} tokens each, verified {verified:.3f},"
        f" transcripts {hashlib.sha256(said).hexdigest()[:12]}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

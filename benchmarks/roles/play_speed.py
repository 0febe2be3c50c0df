"""Seconds per rollout of a run's role, played as GRPO plays a batch: groups of equal prompts, temperature 1.

    python -m benchmarks.roles.play_speed runs/smollm2 --role cto --stage sft --rollouts 64

Prints time, tokens, the engine's passes and a hash of all transcripts: two versions of the engine that print
the same hash said the same, token by token.
"""

import argparse
import asyncio
import hashlib
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from roles.registry import ROLES
from scenarios.registry import families
from simulator.agents.solo import play_solos
from simulator.engines.base import Sampling
from simulator.engines.embedded.engine import TransformersEngine
from training.models.base_model import quiet_libraries
from training.models.weights import load_trainable
from training.runs.memory import keep_freed_memory
from training.runs.run_folder import Run
from training.stages.from_config import make_chat
from training.stages.grpo import draw_scenarios


def main(arguments: Sequence[str]) -> int:
    """Play once, and print a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--role", choices=list(ROLES), default="cto")
    parser.add_argument("--stage", default="sft")
    parser.add_argument("--rollouts", type=int, default=64)
    options = parser.parse_args(arguments)
    quiet_libraries()
    keep_freed_memory()
    run = Run.open(options.run)
    config, grpo = run.config, run.config.grpo
    torch.set_num_threads(config.threads_per_worker)
    model, tokenizer = load_trainable(run, options.stage, options.role)
    chat = make_chat(tokenizer, config)
    engine = TransformersEngine(end_id=chat.end_id, seed=0)
    engine.set_policy(options.role, model, version=f"{options.role}@0")
    passes: list[int] = []
    model.get_decoder().register_forward_pre_hook(  # type: ignore[operator]
        lambda _, args, kwargs: passes.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    drawn = draw_scenarios(run, options.role, "validation", options.rollouts // grpo.group_size, 0)
    wall, cpu = time.perf_counter(), time.process_time()
    episodes = asyncio.run(
        play_solos(
            [scenario for scenario in drawn for _ in range(grpo.group_size)],
            policy=options.role,
            engine=engine,
            chat=chat,
            sampling=Sampling(temperature=1.0, max_completion_tokens=grpo.max_completion_tokens),
            stream="x",
            max_turns=grpo.max_turns,
            max_failed_calls=grpo.max_failed_calls,
            families=families(config.model.prompts),
        )
    )
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    count = len(episodes)
    said = repr([episode.trajectory.token_ids for episode in episodes]).encode()
    own = statistics.fmean(sum(episode.trajectory.loss_mask) for episode in episodes)
    total = statistics.fmean(len(episode.trajectory.token_ids) for episode in episodes)
    verified = statistics.fmean(episode.verdict.reward for episode in episodes)
    print(
        f"{options.stage}/{options.role}: {count} rollouts, {wall / count:.2f} s and {cpu / count:.2f} CPU s"
        f" each ({torch.get_num_threads()} threads), {own:.0f} own of {total:.0f} tokens,"
        f" {len(passes)} passes over {sum(passes) / count:.0f} tokens each, verified {verified:.3f},"
        f" transcripts {hashlib.sha256(said).hexdigest()[:12]}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

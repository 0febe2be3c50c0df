"""The speed of this machine on a config's own model: training positions and sampled tokens per second."""

import asyncio
import os
import time
from collections.abc import Sequence

import torch

from roles.errors import UserError
from simulator.engines.base import CompletionRequest, Sampling
from simulator.engines.embedded.engine import TransformersEngine
from training.config.run_config import RunConfig
from training.data.demonstrations import corpus
from training.models.base_model import build_tiny_model, train_tokenizer
from training.models.optimizers import muon_with_adamw
from training.planning.plan import PhaseTime
from training.planning.workload import JOINT, Phase

REPEATS = 5
SAMPLED_TOKENS = 24
MAX_ROWS = 64


def measure_times(config: RunConfig, phases: Sequence[Phase]) -> list[PhaseTime]:
    """Expected seconds of each phase in one process, from its own row length and batch, in a few seconds.

    Phases of several roles run side by side in `num_workers` processes, and joint episodes
    on rollout hosts: their time is shared among these, as far as there are cores.

    Raises:
        UserError: a preset other than tiny (a large model would have to be loaded).
    """
    if config.model.preset != "tiny":
        raise UserError(
            f"--device cpu measures the preset tiny, not {config.model.preset!r};"
            " name a GPU: --device a100, h100 or h200"
        )
    torch.set_num_threads(config.threads_per_worker)
    model = _build(config)
    times = []
    for phase in phases:
        learning_s = phase.trained / measure_training(model, config, phase)
        sampling_s = phase.sampled / measure_sampling(model, phase) if phase.sampled else 0.0
        if phase.name != JOINT:
            expected = (learning_s + sampling_s) / max(1, config.num_workers)
        else:
            cores = max(1, (os.cpu_count() or 1) // config.threads_per_worker)
            sampling_s /= max(1, min(config.num_hosts, cores))
            overlaps = config.num_hosts and config.marl.max_staleness and cores > config.num_hosts
            expected = max(learning_s, sampling_s) if overlaps else learning_s + sampling_s
        times.append(
            PhaseTime(name=phase.name, compute_floor_s=0.0, bandwidth_floor_s=0.0, expected_s=expected)
        )
    return times


def measure_training(model: torch.nn.Module, config: RunConfig, phase: Phase) -> float:
    """Training positions per second: forward, backward and optimizer on rows of the phase's length."""
    rows, width = max(1, round(min(phase.step_rows, MAX_ROWS))), max(2, round(phase.row))
    ids = torch.randint(20, 150, (rows, width), generator=torch.Generator().manual_seed(0))
    optimizer = muon_with_adamw(model, muon_learning_rate=1e-9, learning_rate=1e-9)
    model.train()

    def step() -> None:
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    start = time.perf_counter()
    for _ in range(REPEATS):
        step()
    return REPEATS * rows * width / (time.perf_counter() - start)


def measure_sampling(model: torch.nn.Module, phase: Phase) -> float:
    """Sampled tokens per second of the embedded engine, prompts of the phase's length computed too."""
    rows = max(1, round(min(phase.batch, 4 * MAX_ROWS)))
    prompt = max(1, round(phase.read / max(1.0, phase.sampled) * SAMPLED_TOKENS))
    engine = TransformersEngine(end_id=2, seed=0)
    engine.set_policy("plan", model, version="plan@0")

    async def play() -> int:
        requests = [
            CompletionRequest(
                policy="plan",
                session=f"plan/{row}",
                prompt_ids=tuple(20 + (row + i) % 130 for i in range(min(prompt, 500))),
                sampling=Sampling(temperature=1.0, max_completion_tokens=SAMPLED_TOKENS),
            )
            for row in range(rows)
        ]
        done = await asyncio.gather(*(engine.complete(request) for request in requests))
        return sum(len(completion.token_ids) for completion in done)

    start = time.perf_counter()
    sampled = asyncio.run(play())
    return sampled / (time.perf_counter() - start)


def _build(config: RunConfig) -> torch.nn.Module:
    texts = corpus(num_role=20, num_team=20, seed=0, difficulties=config.data.difficulties)
    return build_tiny_model(config.model, train_tokenizer(texts, config.model.vocab_size), config.seed)

"""The learner's step on five adapters: tokens/s, share of the matrix peak, peak memory against the plan's.

`padded` is how TRL lays rows out: every row with a prompt of its own, a pass per role.
"""

import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch

from benchmarks.gpu.ceilings import measure_peak
from benchmarks.gpu.records import Record
from benchmarks.gpu.sizes import GROUP_SIZE, Scale, build_team, make_rows
from training.config.rl_config import MarlConfig
from training.config.run_config import RunConfig
from training.learner.learner import backward_team
from training.learner.rows import TrainingRow, make_batches
from training.models.shapes import SHAPES, Shape
from training.planning import joint_memory

WAYS = (  # layout, gradient checkpointing, tokens of a micro-batch
    ("padded", True, 32_768),
    ("shared_prompt", True, 32_768),
    ("shared_prompt", False, 8_192),
    ("padded", False, 8_192),
)
LOGIT_ROWS = 1024


def measure_learner(scale: Scale, preset: str, record: Record, repeats: int = 3) -> None:
    """A record for every way, the fastest layouts first; the rows are the same in all."""
    shape, peak = scale.shape(preset), measure_peak(scale)
    record("peak", preset=preset, flops=peak)
    prompt, own = scale.choose(512, 24), scale.choose((32, 192), (4, 12))
    rows = make_rows(shape, groups=2, prompt=prompt, own=own)
    tokens = sum(len(row.token_ids) for of_role in rows.values() for row in of_role)
    every = [row for of_role in rows.values() for row in of_role]
    saved = len(rows) * 2 * (GROUP_SIZE - 1) * prompt  # prompts that a shared layout does not compute again
    for layout, checkpointing, micro in WAYS:
        model = build_team(shape, scale, checkpointing=checkpointing)
        model.train()
        config = make_config(layout, scale.choose(micro, 256))

        def step(model: Any = model, config: MarlConfig = config, layout: str = layout) -> None:
            model.zero_grad()
            if layout == "padded":
                for role, of_role in rows.items():
                    backward_team(model, {role: of_role}, config)
            else:
                backward_team(model, rows, config)
            scale.wait()

        try:
            measured = time_steps(step, scale, repeats)
        except torch.cuda.OutOfMemoryError as error:
            record(
                "learner", preset=preset, layout=layout, checkpointing=checkpointing, error=str(error)[:300]
            )
        else:
            computed = tokens - (saved if layout == "shared_prompt" else 0)
            flops = training_flops(shape, computed, prompt + own[1] / 2)
            record(
                "learner",
                preset=preset,
                layout=layout,
                checkpointing=checkpointing,
                micro_batch_tokens=micro,
                tokens=tokens,
                computed=computed,
                tokens_per_s=tokens / measured["seconds"],
                share_of_peak=flops / measured["seconds"] / peak,
                planned_gib=None
                if scale.is_toy
                else planned_memory(preset, config, checkpointing, largest_batch(every, config)),
                **measured,
            )
            if layout == "shared_prompt":
                record_kernels(step, scale, record, preset=preset, checkpointing=checkpointing)
        del model, step


def time_steps(step: Any, scale: Scale, repeats: int) -> dict[str, Any]:
    """Median seconds after one step to warm up, and GiB held before and at the peak."""
    on_gpu = scale.device == "cuda"
    if on_gpu:
        torch.cuda.empty_cache()
    held = torch.cuda.memory_allocated() if on_gpu else 0
    step()
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    peak = torch.cuda.max_memory_allocated() if on_gpu else 0
    return {"seconds": statistics.median(seconds), "held_gib": held / 2**30, "peak_gib": peak / 2**30}


def record_kernels(step: Any, scale: Scale, record: Record, **names: Any) -> None:
    """Split one step's time: milliseconds on the device in all, and of the ten largest kernels."""
    activity = torch.profiler.ProfilerActivity
    on_gpu = scale.device == "cuda"
    with torch.profiler.profile(activities=[activity.CUDA if on_gpu else activity.CPU]) as profiler:
        start = time.perf_counter()
        step()
        wall_ms = 1000 * (time.perf_counter() - start)
    spent = {
        one.key[:70]: (one.self_device_time_total if on_gpu else one.self_cpu_time_total) / 1000
        for one in profiler.key_averages()
    }
    largest = sorted(spent.items(), key=lambda item: -item[1])[:10]
    kernels = {name: round(ms, 3) for name, ms in largest}
    record("kernels", wall_ms=wall_ms, device_ms=sum(spent.values()), largest=kernels, **names)


def make_config(layout: str, micro_batch_tokens: int) -> MarlConfig:
    """Joint training's keys for one way of going through the rows."""
    return MarlConfig().changed(
        memory__row_layout=layout,
        memory__logit_rows=LOGIT_ROWS,
        memory__micro_batch_tokens=micro_batch_tokens,
        loss__importance="token",
    )


def training_flops(shape: Shape, tokens: float, row: float) -> float:
    """Of forward and backward over a frozen base; what checkpoints compute again is not counted."""
    attention = 2 * 4 * shape.layers * shape.heads * shape.head_size * row / 2
    return tokens * (4 * shape.num_working + 1.5 * attention)


def planned_memory(
    preset: str, config: MarlConfig, checkpointing: bool, tokens: float, *, moments: bool = False
) -> float:
    """GiB that the plan expects with so many tokens at once, with or without the moments of an optimizer."""
    run = RunConfig().changed(
        model__preset=preset,
        model__adapter="lora",
        model__dtype="bfloat16",
        model__gradient_checkpointing=checkpointing,
        marl=config.model_dump(),
    )
    memory = joint_memory(SHAPES[preset], run, 1, tokens=tokens)
    return (memory.total - (0 if moments else memory.optimizer)) / 2**30


def largest_batch(rows: Sequence[TrainingRow], config: MarlConfig) -> int:
    """Tokens of the largest micro-batch that these rows are cut into."""
    cut = make_batches(rows, layout=config.memory.row_layout, max_tokens=config.memory.micro_batch_tokens)
    return max(batch.token_ids.numel() for batch in cut)

"""TRL's GRPO step on one adapter and the same rows: padded, 8 rows per forward pass, with checkpointing.

Only where TRL and datasets are installed. Forward, loss and backward are timed, as on our side.
"""

import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.ceilings import measure_peak
from benchmarks.gpu.learner import training_flops
from benchmarks.gpu.records import Record
from benchmarks.gpu.sizes import GROUP_SIZE, Scale, build_base, make_rows
from benchmarks.learner.trl_replay import train_on_rows
from roles.registry import ROLES


def measure_trl(scale: Scale, preset: str, record: Record, repeats: int = 3) -> None:
    """One record: tokens/s, share of the matrix peak, peak memory."""
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    from peft import LoraConfig
    from transformers import TrainerCallback
    from trl import GRPOTrainer

    shape, peak = scale.shape(preset), measure_peak(scale)
    prompt, own = scale.choose(512, 24), scale.choose((32, 192), (4, 12))
    rows = make_rows(shape, groups=2, prompt=prompt, own=own)[next(iter(ROLES))]
    tokens = sum(len(row.token_ids) for row in rows)
    starts: list[float] = []
    seconds: list[float] = []

    class Timed(GRPOTrainer):
        def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
            if len(starts) == len(seconds):
                scale.wait()
                if scale.device == "cuda" and len(seconds) == 1:
                    torch.cuda.reset_peak_memory_stats()
                starts.append(time.perf_counter())
            return super().compute_loss(*args, **kwargs)

    class Watch(TrainerCallback):
        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            scale.wait()
            seconds.append(time.perf_counter() - starts[-1])

    with tempfile.TemporaryDirectory(prefix="emads-") as folder:
        train_on_rows(
            Timed,
            build_base(shape, scale),
            rows,
            Path(folder),
            num_steps=1 + repeats,
            rows_per_forward=GROUP_SIZE,
            group_size=GROUP_SIZE,
            settings={
                "max_completion_length": own[1],
                "gradient_checkpointing": True,
                "gradient_checkpointing_kwargs": {"use_reentrant": False},
                "use_cpu": scale.device == "cpu",
                "bf16": scale.device == "cuda",
            },
            peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
            callbacks=[Watch()],
        )
    took = statistics.median(seconds[1:])
    record(
        "trl",
        preset=preset,
        seconds=took,
        tokens=tokens,
        tokens_per_s=tokens / took,
        share_of_peak=training_flops(shape, tokens, prompt + own[1] / 2) / took / peak,
        peak_gib=torch.cuda.max_memory_allocated() / 2**30 if scale.device == "cuda" else 0.0,
    )

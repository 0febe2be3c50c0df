"""One GRPO step on the identical ragged batch: by the learner, and by TRL's own trainer."""

import os
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.learner.rows import GROUP_SIZE, LEARNING, build_model, make_rows, measure, read_memory
from benchmarks.learner.trl_replay import train_on_rows
from training.learner.learner import backward_team
from training.learner.rows import TrainingRow

OURS: dict[str, dict[str, Any]] = {
    "ours, shared prompt": {"memory__row_layout": "shared_prompt", "memory__logit_rows": 256},
}


def run_ours(size: str, name: str, repeats: int, folder: Path) -> dict[str, Any]:
    """Forward, loss and backward of the learner; gradients are left in `folder`."""
    model, rows = build_model(size), make_rows(size)
    config = LEARNING.changed(**{**OURS[name], "loss__importance": "token"})  # weight 1: as TRL on policy

    def step() -> None:
        model.zero_grad()
        backward_team(model, {rows[0].role: rows}, config)

    rows = with_own_logprobs(model, rows)
    found = measure(step, repeats)
    save_gradients(model, folder / "ours.pt")
    return found


def with_own_logprobs(model: Any, rows: list[TrainingRow]) -> list[TrainingRow]:
    """Rows whose sampling logprobs are the model's own."""
    made = []
    for row in rows:
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([row.token_ids]), logits_to_keep=row.num_own + 1).logits[
                0, :-1
            ]
        own = torch.log_softmax(logits.float(), -1).gather(
            1, torch.tensor(row.token_ids[row.num_prompt :])[:, None]
        )
        values = (*[0.0] * row.num_prompt, *own[:, 0].tolist())
        made.append(replace(row, sampling_logprobs=values))
    return made


def save_gradients(model: Any, path: Path) -> None:
    torch.save({name: p.grad for name, p in model.named_parameters() if p.grad is not None}, path)


def run_trl(size: str, rows_per_forward: int, repeats: int, folder: Path) -> dict[str, Any]:
    """TRL's own trainer on the same rows; so many of them per forward pass."""
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    from transformers import TrainerCallback
    from trl import GRPOTrainer

    model, rows = build_model(size), make_rows(size)
    times: list[float] = []
    growth: list[int] = []

    class Timed(GRPOTrainer):
        def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
            if not times or times[-1] > 0:
                times.append(-time.process_time())
                if not growth:
                    growth.append(-read_memory("VmRSS"))
                    Path("/proc/self/clear_refs").write_text("5")
            return super().compute_loss(*args, **kwargs)

    class Watch(TrainerCallback):
        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            times[-1] += time.process_time()
            if len(growth) == 1:
                growth[0] += read_memory("VmHWM")
                growth.append(0)
            if state.global_step == 0:
                save_gradients(kwargs["model"], folder / "trl.pt")

    train_on_rows(
        Timed,
        model,
        rows,
        folder,
        num_steps=1 + repeats,
        rows_per_forward=rows_per_forward,
        group_size=GROUP_SIZE,
        settings={
            "max_completion_length": 128,
            "gradient_checkpointing": False,
            "use_cpu": True,
            "bf16": False,
        },
        callbacks=[Watch()],
    )
    return {"seconds": statistics.median(times[1:]), "growth": growth[0]}


def largest_gap(folder: Path) -> tuple[float, float]:
    """(largest difference of a gradient from TRL's, largest gradient)."""
    ours, theirs = (torch.load(folder / name, weights_only=True) for name in ("ours.pt", "trl.pt"))
    gaps = [float((ours[name] - gradient).abs().max()) for name, gradient in theirs.items()]
    return max(gaps), max(float(gradient.abs().max()) for gradient in theirs.values())

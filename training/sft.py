"""Supervised fine-tuning of one role with TRL's SFTTrainer, loss on the role's own tokens only."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TrainerCallback,
    get_cosine_schedule_with_warmup,
)
from trl import SFTConfig as TrlSftConfig
from trl import SFTTrainer

from training.config import SftConfig
from training.data import TokenRow
from training.optimizers import muon_with_adamw

OnStep = Callable[[int, Mapping[str, float]], None]


class StepReporter(TrainerCallback):
    """Hands the trainer's log lines to `on_step`, numbers only."""

    def __init__(self, on_step: OnStep) -> None:
        self._on_step = on_step

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        numbers = {k: float(v) for k, v in (logs or {}).items() if isinstance(v, int | float)}
        if "loss" in numbers:
            self._on_step(state.global_step, numbers)


def run_sft(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[TokenRow],
    config: SftConfig,
    *,
    max_steps: int,
    output_dir: Path,
    seed: int,
    on_step: OnStep,
) -> None:
    """Train `model` in place for `max_steps` steps of `config.batch_size` rows; 0 steps leave it as it is.

    Raises:
        ValueError: no rows.
    """
    if max_steps == 0:  # the trainer would take it for "no limit"
        return
    if not rows:
        raise ValueError("no supervised rows to train on")
    dataset = Dataset.from_list([row.as_dict() for row in rows])
    args = TrlSftConfig(
        output_dir=str(output_dir),
        max_steps=max_steps,
        per_device_train_batch_size=config.batch_size,
        learning_rate=config.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=min(20, max_steps // 10),
        max_length=None,
        gradient_checkpointing=False,
        logging_steps=10,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
        bf16=torch.cuda.is_available(),
        dataloader_pin_memory=False,
        seed=seed,
    )
    optimizers: tuple[Any, Any] = (None, None)
    if config.optimizer == "muon":
        optimizer = muon_with_adamw(
            model, muon_learning_rate=config.muon_learning_rate, learning_rate=config.learning_rate
        )
        optimizers = (
            optimizer,
            get_cosine_schedule_with_warmup(optimizer, int(args.warmup_steps), max_steps),
        )
    trainer = SFTTrainer(
        model=model,
        args=args,
        train_dataset=dataset,
        processing_class=tokenizer,
        optimizers=optimizers,
        callbacks=[StepReporter(on_step)],
    )
    trainer.remove_callback(_printer())
    trainer.train()


def _printer() -> type[TrainerCallback]:
    from transformers.trainer_callback import PrinterCallback

    return PrinterCallback

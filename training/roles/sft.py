"""Supervised fine-tuning of one role with TRL's SFTTrainer, loss on the role's own tokens only."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from torch import nn
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TrainerCallback,
    get_cosine_schedule_with_warmup,
)
from trl import SFTConfig as TrlSftConfig
from trl import SFTTrainer

from training.config.sft_config import SftConfig
from training.data.demonstrations import TokenRow
from training.models.optimizers import muon_with_adamw
from training.roles.completion_logprobs import completion_logprobs
from training.roles.resumable_trainer import ResumableTrainer, device_options
from training.roles.shared_prompts import SharedPrompts, own_logprobs
from training.roles.validation import BestKeeper, ValidateEvery
from training.runs.resume import StageCheckpoints

MOST_STEPS_PER_LOG, LEAST_LOGS = 10, 40  # a short stage logs more often, so that its curve shows
PACK_TOKENS = 1024  # of a packed row, at most
OnStep = Callable[[int, Mapping[str, float]], None]


class ResumableSftTrainer(ResumableTrainer, SharedPrompts, SFTTrainer):
    """TRL's trainer with our checkpoints."""


class StepReporter(TrainerCallback):
    """Hands the trainer's log lines to `on_step`, numbers only."""

    def __init__(self, on_step: OnStep) -> None:
        self._on_step = on_step

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        numbers = {k: float(v) for k, v in (logs or {}).items() if isinstance(v, int | float)}
        if "loss" in numbers:
            self._on_step(state.global_step, numbers)


def mean_loss(
    model: nn.Module, rows: Sequence[TokenRow], *, rows_per_pass: int, share: bool = False
) -> float:
    """Mean negative log-likelihood of the rows' own tokens, in nats; `share`: in passes of shared prompts."""
    pairs = [(row.token_ids, row.loss_mask) for row in rows]
    if share:
        was_training = model.training
        model.eval()
        passes = [pairs[start : start + rows_per_pass] for start in range(0, len(pairs), rows_per_pass)]
        with torch.no_grad():
            found = torch.cat([own_logprobs(model, texts) for texts in passes])
        model.train(was_training)
        return -float(found.mean())
    return -float(completion_logprobs(model, pairs, rows_per_pass=rows_per_pass).mean())


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
    checkpoints: StageCheckpoints | None = None,
    validation_rows: Sequence[TokenRow] = (),
    gradient_checkpointing: bool = False,
    shares_weights: bool = False,
) -> int:
    """Train `model` in place for `max_steps` steps of `config.batch_size` rows; 0 steps leave it as it is.

    With `config.validate_every` it ends with the weights of the best validation. `shares_weights`: the
    processes take a part of the model each (FSDP2).

    Returns: the step that the weights are of.

    Raises:
        ValueError: no rows, or no validation rows where they are needed.
    """
    if max_steps == 0:  # the trainer would take it for "no limit"
        return 0
    if not rows or (config.validate_every and not validation_rows):
        raise ValueError("no supervised rows to train on, or none to validate on")
    micro = config.micro_batch_size or config.batch_size
    dataset = Dataset.from_list([row.as_dict() for row in rows])
    args = TrlSftConfig(
        output_dir=str(output_dir),
        max_steps=max_steps,
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=config.batch_size // micro,
        learning_rate=config.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=min(20, max_steps // 10),
        packing=config.row_layout == "packed",
        max_length=PACK_TOKENS if config.row_layout == "packed" else None,
        router_aux_loss_coef=0.0,  # in every stage the loss of what was sampled or shown alone
        gradient_checkpointing=gradient_checkpointing,
        logging_steps=min(MOST_STEPS_PER_LOG, max(1, max_steps // LEAST_LOGS)),
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        **device_options(),
        dataloader_pin_memory=False,
        seed=seed,
    )
    trainer = ResumableSftTrainer(
        model=model,
        args=args,
        train_dataset=dataset,
        processing_class=tokenizer,
        callbacks=[StepReporter(on_step)],
    )
    trainer.remove_callback(_printer())
    if shares_weights:
        trainer.shard_weights()
    if config.optimizer == "muon":
        optimizer = muon_with_adamw(
            model,
            muon_learning_rate=config.muon_learning_rate,
            learning_rate=config.learning_rate,
            ranks=trainer.ranks,
        )
        trainer.optimizer = optimizer
        trainer.lr_scheduler = get_cosine_schedule_with_warmup(optimizer, int(args.warmup_steps), max_steps)
    trainer.shares_prompts = config.row_layout == "shared_prompt"
    if not config.validate_every:
        trainer.keep_checkpoints(checkpoints)
        trainer.train_on()
        return int(trainer.state.global_step)
    keeper = BestKeeper(model, patience=config.patience)

    def measure() -> tuple[float, Mapping[str, float]]:
        share = trainer.shares_prompts or shares_weights  # which are gathered around such passes alone
        loss = mean_loss(model, validation_rows, rows_per_pass=micro, share=share)
        return -loss, {"validation/loss": loss}

    trainer.add_callback(
        ValidateEvery(keeper, measure, on_step, every=config.validate_every, ranks=trainer.ranks)
    )
    trainer.keep_checkpoints(checkpoints, {"best": keeper})
    trainer.train_on()
    return keeper.restore()


def _printer() -> type[TrainerCallback]:
    from transformers.trainer_callback import PrinterCallback

    return PrinterCallback

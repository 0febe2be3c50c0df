"""Supervised fine-tuning of one role with TRL's SFTTrainer, loss on the role's own tokens only.

All prompts of a role begin with its mandate, often most of their tokens: with shared prompts texts are laid
end to end after it (training/learner/packing.py), and values and gradients are those of the padded batch.
LoRA is applied in the precision of the base (training/learner/lora_batch.py).
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial, wraps
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from jaxtyping import Float
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TrainerCallback,
    get_cosine_schedule_with_warmup,
)
from transformers.trainer_callback import PrinterCallback
from trl import SFTConfig as TrlSftConfig
from trl import SFTTrainer

from training.config.run_config import SftConfig
from training.data.demonstrations import IGNORED_LABEL, TokenRow
from training.learner.lora_batch import routed_roles
from training.learner.packing import RowBatch, make_batches
from training.learner.ranks import Ranks
from training.learner.rows import make_plain_row
from training.learner.token_logprobs import completion_logprobs, token_logprobs
from training.models.optimizers import muon_with_adamw
from training.roles.resumable_trainer import ResumableTrainer, device_options
from training.runs.resume import BestKeeper, StageCheckpoints, trained_tensors

Measure = Callable[[], tuple[float, Mapping[str, float]]]  # a score (higher is better), and what to log
Report = Callable[[int, Mapping[str, float]], None]


class ValidateEvery(TrainerCallback):
    """Measures before training and after every `every` steps; stops where nothing improves."""

    def __init__(
        self, keeper: BestKeeper, measure: Measure, report: Report, *, every: int, ranks: Ranks
    ) -> None:
        self._keeper, self._measure, self._report = keeper, measure, report
        self._every, self._ranks = every, ranks

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 0:
            self._validate(0)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step % self._every == 0 or state.global_step == state.max_steps:
            self._validate(state.global_step)
            if self._keeper.should_stop:
                control.should_training_stop = True

    def _validate(self, step: int) -> None:
        score, metrics = self._ranks.first(self._measure())  # else processes would part for good
        self._keeper.offer(step, score)
        self._report(step, {**metrics, "validation/best_step": float(self._keeper.best_step)})


LOGIT_ROWS = 512  # tokens whose logits are held at once


class SharedPrompts:
    """To be mixed in before TRL's SFTTrainer: its loss, or the same number with shared prompts."""

    shares_prompts: bool = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        trainer: Any = self
        if trainer.args.world_size > 1:
            _take_shared_prompts(trainer.model)

    def compute_loss(
        self,
        model: Any,
        inputs: Mapping[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Mean negative log-likelihood of the labels.

        Of TRL's metrics `num_tokens` is counted on; entropy and accuracy would need more of the logits.
        """
        if not self.shares_prompts:
            return super().compute_loss(  # type: ignore[misc]
                model, inputs, return_outputs=return_outputs, num_items_in_batch=num_items_in_batch
            )
        trainer: Any = self
        own = (inputs["labels"] != IGNORED_LABEL).long().tolist()
        texts = list(zip(inputs["input_ids"].tolist(), own, strict=True))
        logprobs = self._share(own_logprobs, model, texts)
        count = len(logprobs) if num_items_in_batch is None else num_items_in_batch
        loss = -logprobs.sum() / count
        if num_items_in_batch is not None and trainer.args.average_tokens_across_devices:
            loss = loss * trainer.accelerator.num_processes  # gradients are averaged over them
        tokens = trainer.accelerator.gather_for_metrics(inputs["attention_mask"].sum()).sum()
        trainer._total_train_tokens += int(tokens)
        trainer._metrics["train"]["num_tokens"] = [trainer._total_train_tokens]
        return (loss, {}) if return_outputs else loss

    def _share(self, work: Any, model: Any, *given: Any) -> Any:
        """Call `work(model, *given)`; of a wrapped model through its forward, which sums gradients then."""
        trainer: Any = self
        inner = trainer.accelerator.unwrap_model(model)
        with trainer.accelerator.autocast():
            if inner is model or not torch.is_grad_enabled():
                return work(inner, *given)
            return model(shared_prompts=(work, given))


def _take_shared_prompts(model: Any) -> None:
    """Let `model(shared_prompts=(work, given))` call `work`; all else goes on to its own forward."""
    forward = model.forward

    @wraps(forward)
    def forward_or_share(*args: Any, shared_prompts: Any = None, **kwargs: Any) -> Any:
        if shared_prompts is None:
            return forward(*args, **kwargs)
        work, given = shared_prompts
        return work(model, *given)

    model.forward = forward_or_share


def own_logprobs(
    model: nn.Module, texts: Sequence[tuple[Sequence[int], Sequence[int]]]
) -> Float[Tensor, " own"]:
    """Log-probabilities (with gradient) of the own tokens of texts, in no particular order.

    A text is its token ids and a 1 for each own one. What follows the last own token is not computed.
    """
    rows = []
    for ids, own in texts:
        width = max((place + 1 for place, bit in enumerate(own) if bit), default=0)
        if width:
            rows.append(make_plain_row(ids[:width], own[:width]))
    device = next(model.parameters()).device
    if not rows:
        return torch.zeros(0, device=device)
    total = sum(len(row.token_ids) for row in rows)
    (batch,) = make_batches(rows, layout="shared_prompt", max_tokens=total, device=device)
    with _routed(model, batch):
        return token_logprobs(model, batch, logit_rows=LOGIT_ROWS)[0]


def _routed(model: Any, batch: RowBatch) -> AbstractContextManager[None]:
    """Let the tokens pass through the active adapter in the base's precision.

    PEFT does it in float32, and is left to it where layers are computed again in the backward pass, which is
    after this context.
    """
    active = getattr(model, "active_adapters", None)
    if not isinstance(model, PeftModel) or not isinstance(active, list) or len(active) != 1:
        return nullcontext()
    layers = [module for module in model.modules() if isinstance(module, LoraLayer)]
    is_plain = all(isinstance(one.get_base_layer(), nn.Linear) and not one.disable_adapters for one in layers)
    if not is_plain or getattr(model, "is_gradient_checkpointing", False):
        return nullcontext()
    return routed_roles(model, batch, adapter=active[0])


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
    trainer.remove_callback(PrinterCallback)
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
    keeper = BestKeeper(partial(trained_tensors, model), patience=config.patience)

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

"""Supervised fine-tuning with TRL's SFTTrainer, and what makes every trainer of TRL keep our checkpoints.

Trainer itself resumes with pickled files. `ResumableTrainer`, a class to mix in before one of TRL's, puts its
state through training/runs/resume.py, and the sums of half-logged metrics go with it. Steps whose gradient is
not finite change nothing and are counted. Of many processes the first one saves, with what the others need to
go on, and each its part of sharded weights; under DeepSpeed nothing is saved.

SFT has loss on the role's own tokens only. All prompts of a role begin with its mandate, often most of their
tokens: with shared prompts texts are laid end to end after it (training/learner/rows.py), and values and
gradients are those of the padded batch. LoRA is applied in the precision of the base
(training/learner/lora_batch.py).
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial, wraps
from pathlib import Path
from typing import Any, TypeVar

import torch
from accelerate.utils import parse_flag_from_env
from datasets import Dataset
from jaxtyping import Float
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Trainer,
    TrainerCallback,
    get_cosine_schedule_with_warmup,
)
from transformers.trainer_callback import ExportableState, PrinterCallback
from trl import SFTConfig as TrlSftConfig
from trl import SFTTrainer

from roles.errors import UserError
from simulator.export.atomic_files import encode_json
from training.config.run_config import SftConfig
from training.data.demonstrations import IGNORED_LABEL, TokenRow
from training.learner.fsdp import save_on_ranks, shard_model
from training.learner.lora_batch import routed_roles
from training.learner.ranks import Ranks
from training.learner.rows import RowBatch, make_batches, make_plain_row
from training.learner.token_logprobs import completion_logprobs, token_logprobs
from training.models.optimizers import muon_with_adamw
from training.runs.faults import fault_point
from training.runs.resume import (
    BestKeeper,
    StageCheckpoints,
    Stateful,
    load_optimizer,
    load_tensors,
    trained_tensors,
)
from training.runs.run_errors import SkippedSteps
from training.runs.state_files import capture_random_states, read_state, restore_random_states

# Of the trainers' own attributes, those that the next step or the next log line depends on.
ATTRIBUTES = (
    "_total_train_tokens", "_tr_loss", "_total_loss_scalar", "_globalstep_last_logged", "current_flos",
)  # fmt: skip


def uses_deepspeed() -> bool:
    """Return whether accelerate was told to launch with DeepSpeed."""
    return bool(parse_flag_from_env("ACCELERATE_USE_DEEPSPEED"))


def device_options() -> dict[str, Any]:
    """Return a trainer's arguments for this machine; DeepSpeed has its own precision, and gloo on a CPU."""
    has_gpu = torch.cuda.is_available()
    if uses_deepspeed():
        return {"bf16": False} | ({} if has_gpu else {"ddp_backend": "gloo"})
    return {"use_cpu": not has_gpu, "bf16": has_gpu}


class ResumableTrainer(Trainer):
    """Saves when `checkpoints` says so and goes on from its newest sound checkpoint, bit for bit on a CPU."""

    checkpoints: StageCheckpoints | None = None
    parts: Mapping[str, Stateful] = {}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.skipped = SkippedSteps()  # left out because the gradient was not finite

    @property
    def ranks(self) -> Ranks:
        """This process among those of the launch."""
        return Ranks(rank=self.args.process_index, size=self.args.world_size)

    def shard_weights(self) -> None:
        """FSDP2 as in joint training: over any device, and around the passes that share prompts.

        Once, before there is an optimizer. accelerate then takes the models as they are.
        """
        model: Any = self.model
        shard_model(model, bf16=self.args.bf16)
        model._is_accelerate_prepared = True  # else it would wrap it for data parallel training

    def keep_checkpoints(
        self, checkpoints: StageCheckpoints | None, parts: Mapping[str, Stateful] | None = None
    ) -> None:
        """Before `train_on`: where checkpoints go, and what else than the trainer has a state.

        Raises:
            UserError: DeepSpeed trains, and there is something to go on from.
        """
        self.checkpoints, self.parts = checkpoints, {**(parts or {}), "skipped": self.skipped}
        if checkpoints is None:
            return
        if self.is_deepspeed_enabled:
            if any(checkpoints.folder.glob("step_*")):
                raise UserError(
                    f"{checkpoints.stage} was stopped at a checkpoint in {checkpoints.folder}, which"
                    " DeepSpeed cannot go on from: remove that folder to begin again, or launch without it"
                )
            self.checkpoints = None
        else:
            self.add_callback(_SaveWhenDue(checkpoints, self.ranks))

    def train_on(self) -> None:
        """Train to the end, from the newest sound checkpoint if there is one.

        Raises:
            UserError: it was saved by another number of processes.
        """
        found = self._find()
        if found is None:
            self.train()
        elif not read_state(found, "trainer")["is_over"]:
            self.train(resume_from_checkpoint=str(found))
        else:  # a kill between the last step and the published weights
            self._load_from_checkpoint(str(found))
            self.state.global_step = read_state(found, "progress")["step"]
            self._load_parts(found)

    def _find(self) -> Path | None:
        """The checkpoint to go on from; the first process looks and sets damaged ones aside."""
        if self.checkpoints is None:
            return None
        ranks = self.ranks
        found = ranks.first(self.checkpoints.find() if ranks.rank == 0 else None)
        saved_by = read_state(found, "trainer").get("num_processes", 1) if found is not None else None
        if saved_by not in (None, self.args.world_size):
            raise UserError(
                f"{self.checkpoints.stage}: {found} was saved by {saved_by} processes, and these are"
                f" {self.args.world_size}; go on with {saved_by}, or remove the folder to begin again"
            )
        return found

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        if self.accelerator.sync_gradients or self.args.gradient_accumulation_steps == 1:
            fault_point("step")
        return super().training_step(*args, **kwargs)

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        result = super().compute_loss(*args, **kwargs)
        if self.model is None or not self.model.training:
            return result
        return (
            (fault_point("loss", result[0]), *result[1:])
            if isinstance(result, tuple)
            else fault_point("loss", result)
        )

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        norm = super()._get_grad_norm(model, grad_norm)  # type: ignore[no-untyped-call]
        if norm is not None and not self.skipped.watch(self.state.global_step + 1, [float(norm)]):
            for parameter in model.parameters():
                parameter.grad = None  # the optimizer leaves weights without a gradient as they are
        return norm

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if self.skipped.count:
            logs["skipped_steps"] = float(self.skipped.count)
        super().log(logs, start_time)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        assert self.checkpoints is not None
        self.store_flos()
        trainer: Any = self  # Trainer declares what is there while it trains as possibly None
        states = {
            "weights": trained_tensors(trainer.model),
            "optimizer": trainer.optimizer.state_dict(),
            "scheduler": trainer.lr_scheduler.state_dict(),
        } | {f"part-{name}": dict(part.state()) for name, part in self.parts.items()}
        ranks = self.ranks
        own = ranks.gather({"trainer": self._own_state(), "random": capture_random_states()})
        for rank, state in enumerate(own):
            states |= {f"rank-{rank}": state} if rank else {"trainer": state["trainer"]}
        save_on_ranks(self.checkpoints, self.state.global_step, states, ranks, self._write_progress)

    def _own_state(self) -> dict[str, Any]:
        """State that differs from process to process, but for random states."""
        own = {name: getattr(self, name) for name in ATTRIBUTES if hasattr(self, name)}
        own["is_over"] = self.control.should_training_stop or self.state.global_step >= self.args.max_steps
        own["_metrics"] = {mode: dict(sums) for mode, sums in getattr(self, "_metrics", {}).items()}
        if self.args.world_size > 1:
            own["num_processes"] = self.args.world_size
        return own

    def _write_progress(self, folder: Path) -> None:
        state = asdict(self.state) | {"log_history": [], "stateful_callbacks": self._callback_states()}
        (folder / "trainer_state.json").write_bytes(encode_json(state))

    def _callback_states(self) -> dict[str, Any]:
        states: dict[str, Any] = {}
        for callback in [*self.callback_handler.callbacks, self.control]:
            if isinstance(callback, ExportableState):
                states.setdefault(type(callback).__name__, []).append(callback.state())
        return states

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        stored = read_state(Path(resume_from_checkpoint), "weights")
        target: Any = self.model if model is None else model
        load_tensors(stored, trained_tensors(target))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            trainer: Any = self
            load_optimizer(trainer.optimizer, read_state(Path(checkpoint), "optimizer"))
            trainer.lr_scheduler.load_state_dict(read_state(Path(checkpoint), "scheduler"))

    def _load_scaler(self, checkpoint: str | None) -> None:
        """No gradient scaler: training is in float32 or bfloat16."""

    def _load_rng_state(self, checkpoint: str | None) -> None:
        """Called when the data stands where it stood: the last of the state goes in here."""
        if checkpoint is None:
            return
        path, rank = Path(checkpoint), self.ranks.rank
        stored = read_state(path, f"rank-{rank}") if rank else None
        own = read_state(path, "trainer") if stored is None else stored["trainer"]
        del own["is_over"]
        own.pop("num_processes", None)
        trainer: Any = self
        for mode, sums in own.pop("_metrics").items():
            trainer._metrics[mode].update(sums)
        for name, value in own.items():
            setattr(self, name, value)
        self._tr_loss = self._tr_loss.to(self.args.device)
        self._load_parts(path)
        restore_random_states(read_state(path, "random") if stored is None else stored["random"])

    def _load_parts(self, path: Path) -> None:
        for name, part in self.parts.items():
            part.load_state(read_state(path, f"part-{name}"))


class _SaveWhenDue(TrainerCallback):
    def __init__(self, checkpoints: StageCheckpoints, ranks: Ranks) -> None:
        self._checkpoints, self._ranks = checkpoints, ranks

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._ranks.first(self._checkpoints.is_due(state.global_step)):
            control.should_save = True


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
Trained = TypeVar("Trained", bound=ResumableTrainer)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSite:
    """Arguments of every trainer of TRL: a scratch folder, the seed, a callback of steps, and checkpoints."""

    output_dir: Path
    seed: int
    on_step: OnStep
    checkpoints: StageCheckpoints | None = None

    def options(self, *, max_steps: int, learning_rate: float) -> dict[str, Any]:
        """Return the part of a trainer's config that is alike for SFT, DPO and reward models."""
        return {
            "output_dir": str(self.output_dir),
            "max_steps": max_steps,
            "learning_rate": learning_rate,
            "lr_scheduler_type": "cosine",
            "save_strategy": "no",
            "report_to": "none",
            "disable_tqdm": True,
            **device_options(),
            "dataloader_pin_memory": False,
            "seed": self.seed,
        }

    def make_trainer(
        self,
        kind: type[Trained],
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        args: Any,
        rows: list[dict[str, Any]],
        **options: Any,
    ) -> Trained:
        """Return a trainer on these rows that reports its log lines here alone."""
        trainer = kind(
            model=model,
            args=args,
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer,
            callbacks=[StepReporter(self.on_step)],
            **options,
        )
        trainer.remove_callback(PrinterCallback)
        return trainer


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
    site: TrainingSite,
    *,
    max_steps: int,
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
    args = TrlSftConfig(
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=config.batch_size // micro,
        warmup_steps=min(20, max_steps // 10),
        packing=config.row_layout == "packed",
        max_length=PACK_TOKENS if config.row_layout == "packed" else None,
        router_aux_loss_coef=0.0,  # in every stage the loss of what was sampled or shown alone
        gradient_checkpointing=gradient_checkpointing,
        logging_steps=min(MOST_STEPS_PER_LOG, max(1, max_steps // LEAST_LOGS)),
        **site.options(max_steps=max_steps, learning_rate=config.learning_rate),
    )
    trainer = site.make_trainer(ResumableSftTrainer, model, tokenizer, args, [row.as_dict() for row in rows])
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
        trainer.keep_checkpoints(site.checkpoints)
        trainer.train_on()
        return int(trainer.state.global_step)
    keeper = BestKeeper(partial(trained_tensors, model), patience=config.patience)

    def measure() -> tuple[float, Mapping[str, float]]:
        share = trainer.shares_prompts or shares_weights  # which are gathered around such passes alone
        loss = mean_loss(model, validation_rows, rows_per_pass=micro, share=share)
        return -loss, {"validation/loss": loss}

    trainer.add_callback(
        ValidateEvery(keeper, measure, site.on_step, every=config.validate_every, ranks=trainer.ranks)
    )
    trainer.keep_checkpoints(site.checkpoints, {"best": keeper})
    trainer.train_on()
    return keeper.restore()

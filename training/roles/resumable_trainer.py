"""Makes a Hugging Face trainer keep our checkpoints: a class to mix in before one of TRL's.

Trainer itself resumes with pickled files. Here its state goes through training/runs/resume.py, and the sums
of half-logged metrics go with it. Steps whose gradient is not finite change nothing and are counted. Of many
processes the first one saves, with what the others need to go on, and each its part of sharded weights; under
DeepSpeed nothing is saved.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import parse_flag_from_env
from torch import Tensor
from transformers import Trainer, TrainerCallback

from roles.errors import UserError
from simulator.export.atomic_files import encode_json
from training.learner.fsdp import save_on_ranks, shard_model
from training.learner.ranks import Ranks
from training.runs.faults import fault_point
from training.runs.resume import (
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
        from transformers.trainer_callback import ExportableState

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

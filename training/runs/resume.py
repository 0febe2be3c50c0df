"""Checkpoints of an unfinished stage: when they are saved, how they are found, and loading them.

They stand in RUN/checkpoints/unfinished/STAGE/step_N until the stage is finished, and obey
training/runs/checkpoints.py. What is in them is up to the trainer: weights and optimizer, random states,
data position and the rollout window, so that nothing is played again.
"""

import math
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from training.runs.checkpoints import DamagedCheckpointError, newest_sound, prune, publish
from training.runs.faults import enter_stage
from training.runs.run_folder import Run
from training.runs.state_files import (
    Shard,
    capture_random_states,
    load_like,
    read_state,
    restore_random_states,
    write_state,
)

CHECKPOINT_PERIOD_S = 60.0  # between saves where no number of steps is configured, at least
SAVES_PER_PERIOD = 20.0  # and so many times as long as the last one took: large weights are saved less often
CHECKPOINTS_KEPT = 2  # a damaged one needs an older one
UNFINISHED = "unfinished"


class Stateful(Protocol):
    """Something whose state travels with a checkpoint: rollouts, a curriculum, a joint learner."""

    def state(self) -> Mapping[str, Any]:
        """Everything that the next step depends on, as `write_state` takes it."""
        ...

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned."""
        ...


class StageCheckpoints:
    """The checkpoints of one unfinished stage of a run ("grpo/cto")."""

    def __init__(
        self,
        run: Run,
        stage: str,
        *,
        every_steps: int,
        clock: Callable[[], float] = time.monotonic,
        report: Callable[[str], None] | None = None,
    ) -> None:
        self.run, self.stage, self.every_steps = run, stage, every_steps
        self.folder = run.path / "checkpoints" / UNFINISHED / stage
        self._clock, self._report = clock, report or partial(print, file=sys.stderr, flush=True)
        self._identity = f"{run.digest}/{UNFINISHED}/{stage}"
        self._start = self._last_save = clock()
        self._save_s = 0.0  # that the latest save took
        self._spent_s = 0.0  # by earlier processes, up to the checkpoint that was loaded
        self._previous: str | None = None
        enter_stage(stage)

    @property
    def train_s(self) -> float:
        """Seconds that the stage has trained, those before a kill included where they were saved."""
        return self._spent_s + self._clock() - self._start

    def find(self) -> Path | None:
        """The newest sound checkpoint, or None; damaged ones are set aside and named.

        The metrics that were logged after it are dropped: they are about to be logged again.
        """
        for leftover in self.folder.glob(".tmp-*"):  # of a save that a kill cut short
            shutil.rmtree(leftover)
        found = newest_sound(self.folder, run=self._identity, report=self._report)
        step = 0
        if found is not None:
            progress = read_state(found, "progress")
            step, self._spent_s = int(progress["step"]), float(progress["train_s"])
            self._start = self._last_save = self._clock()
            self._previous = found.name
            self._report(f"{self.stage}: going on after step {step}")
        self.run.rewind_metrics(self.stage, step)
        return found

    def is_due(self, step: int) -> bool:
        """Return whether a checkpoint is to be saved after `step`."""
        if self.every_steps:
            return step % self.every_steps == 0
        period = max(CHECKPOINT_PERIOD_S, SAVES_PER_PERIOD * self._save_s)
        return self._clock() - self._last_save >= period

    def save(self, step: int, write: Callable[[Path], None]) -> Path:
        """Publish what `write` puts into the folder, beside random states and progress; older ones go.

        Raises:
            UserError: the disk is full or not writable; the earlier checkpoints are untouched.
        """

        def write_all(folder: Path) -> None:
            write(folder)
            write_state(folder, "random", capture_random_states())
            write_state(folder, "progress", {"step": step, "train_s": self.train_s})

        begin = self._clock()
        path = publish(
            self.folder, f"step_{step}", write_all, run=self._identity, step=step, previous=self._previous
        )
        self._previous, self._last_save = path.name, self._clock()
        self._save_s = self._last_save - begin
        prune(self.folder, CHECKPOINTS_KEPT)
        return path

    def clear(self) -> None:
        """Remove all of them: the stage is finished and its weights are published."""
        shutil.rmtree(self.folder, ignore_errors=True)


def trained_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Trainable parameters and stored buffers by name: what a step can change (LoRA: the adapters only)."""
    stored = model.state_dict().keys()  # first: of a sharded model it frees what passes have gathered
    tensors = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    return tensors | {f"buffer:{name}": b for name, b in model.named_buffers() if name in stored}


def load_tensors(stored: Mapping[str, Tensor | Shard], places: Mapping[str, Tensor]) -> None:
    """Copy stored tensors into those of the same names, sharded or not, e.g. of `trained_tensors(model)`.

    Raises:
        DamagedCheckpointError: other names or shapes.
    """
    if places.keys() != stored.keys() or any(places[n].shape != tuple(stored[n].shape) for n in places):
        raise DamagedCheckpointError("the checkpoint's weights are of another model")
    placed = load_like(stored, places)
    with torch.no_grad():
        for name, place in places.items():
            place.copy_(placed[name])


def load_optimizer(optimizer: torch.optim.Optimizer, stored: Mapping[str, Any]) -> None:
    """Go on from a state of this optimizer, sharded as its parameters are."""
    if "state" not in stored:  # of several in one, which come back here one by one
        optimizer.load_state_dict(dict(stored))
        return
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    moments = {
        (place, key): value
        for place, one in stored["state"].items()
        for key, value in one.items()
        if len(getattr(value, "shape", ()))
    }
    placed = load_like(
        {f"{place}/{key}": value for (place, key), value in moments.items()},
        {f"{place}/{key}": parameters[int(place)].detach() for place, key in moments},
    )
    state = {
        place: {key: placed.get(f"{place}/{key}", value) for key, value in one.items()}
        for place, one in stored["state"].items()
    }
    optimizer.load_state_dict({"state": state, "param_groups": stored["param_groups"]})


def load_parts(path: Path, parts: Mapping[str, Stateful]) -> None:
    """Give each part the state that was saved, then set the random generators."""
    for name, part in parts.items():
        part.load_state(read_state(path, name))
    restore_random_states(read_state(path, "random"))


class BestKeeper:
    """Holds the weights of the best score; a Stateful part of a checkpoint.

    Example: keeper = BestKeeper(partial(trained_tensors, model), patience=3); keeper.offer(20, 0.71)
    """

    def __init__(self, places: Callable[[], Mapping[str, Tensor]], *, patience: int) -> None:
        """`places`: the weights as they are held now. `patience`: scores in a row that are no better than the
        best and end the training; 0 never does."""
        self._places, self._patience = places, patience
        self.best_step, self.best_score = -1, -math.inf
        self._num_worse = 0
        self._tensors: dict[str, Tensor] = {}

    def offer(self, step: int, score: float) -> bool:
        """Take the weights as they are now if they score higher than all before; a NaN never does."""
        if not score > self.best_score:
            self._num_worse += 1
            return False
        self.best_step, self.best_score, self._num_worse = step, score, 0
        self._tensors = {
            name: tensor.clone() if isinstance(tensor, DTensor) else tensor.to("cpu", copy=True)
            for name, tensor in self._places().items()
        }
        return True

    @property
    def should_stop(self) -> bool:
        """Whether the last `patience` scores were no better than the best before them."""
        return 0 < self._patience <= self._num_worse

    def restore(self) -> int:
        """Put the best weights back; the step that they are of, -1 where none was scored."""
        if self._tensors:
            load_tensors(self._tensors, self._places())
        return self.best_step

    def state(self) -> dict[str, Any]:
        return {
            "best_step": self.best_step,
            "best_score": self.best_score,
            "num_worse": self._num_worse,
            "tensors": self._tensors,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.best_step, self.best_score = state["best_step"], state["best_score"]
        self._num_worse = state["num_worse"]
        self._tensors = load_like(state["tensors"], self._places())


def logged_values(run: Run, stage: str, names: Sequence[str]) -> list[dict[str, float]]:
    """Logged values of the stage so far, one dict per row that has all of `names`."""
    rows = [dict(row.metrics) for row in run.read_metrics(stage)]
    return [row for row in rows if all(name in row for name in names)]

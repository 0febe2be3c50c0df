"""Validation during training: the best weights so far are kept; training stops where nothing improves."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers import TrainerCallback

from training.learner.ranks import Ranks
from training.runs.resume import load_tensors, trained_tensors
from training.runs.shard_files import load_like

Measure = Callable[[], tuple[float, Mapping[str, float]]]  # a score (higher is better), and what to log
Report = Callable[[int, Mapping[str, float]], None]


class BestKeeper:
    """Holds the weights of the best score; a Stateful part of a checkpoint (training/runs/resume.py).

    Example: keeper = BestKeeper(model, patience=3); keeper.offer(20, 0.71); keeper.should_stop
    """

    def __init__(self, model: nn.Module, *, patience: int) -> None:
        self._model, self._patience = model, patience
        self.best_step, self.best_score = -1, -math.inf
        self._num_worse = 0
        self._tensors: dict[str, Tensor] = {}

    def offer(self, step: int, score: float) -> None:
        """Take the weights as they are now if they score higher than all before; a NaN never does."""
        if score > self.best_score:
            self.best_step, self.best_score, self._num_worse = step, score, 0
            self._tensors = {
                name: tensor.clone() if isinstance(tensor, DTensor) else tensor.to("cpu", copy=True)
                for name, tensor in trained_tensors(self._model).items()
            }
        else:
            self._num_worse += 1

    @property
    def should_stop(self) -> bool:
        """Whether the last `patience` scores (0: never) were no better than the best before them."""
        return 0 < self._patience <= self._num_worse

    def restore(self) -> int:
        """Put the best weights back into the model; the step that they are of, -1 where none was scored."""
        if self._tensors:
            load_tensors(self._tensors, trained_tensors(self._model))
        return self.best_step

    def state(self) -> Mapping[str, Any]:
        return {
            "best_step": self.best_step,
            "best_score": self.best_score,
            "num_worse": self._num_worse,
            "tensors": self._tensors,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.best_step, self.best_score = state["best_step"], state["best_score"]
        self._num_worse = state["num_worse"]
        self._tensors = load_like(state["tensors"], trained_tensors(self._model))


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
        score, metrics = self._ranks.first(
            self._measure()
        )  # processes that measured apart would part for good
        self._keeper.offer(step, score)
        self._report(step, {**metrics, "validation/best_step": float(self._keeper.best_step)})

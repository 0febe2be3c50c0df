"""Keeps the weights that do best on the validation split, sampled as they are trained."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from training.models.adapters import role_weights
from training.rl.loop import RLLearner
from training.runs.resume import BestKeeper


class BestWeights(BestKeeper):
    """The best validation so far with a copy of its weights."""

    def __init__(self, learner: RLLearner, scenarios: Sequence[Any], *, patience: int = 0) -> None:
        super().__init__(self._list_weights, patience=patience)
        self.learner, self.scenarios = learner, scenarios
        self.rewards: list[float] = []  # of the best validation, case by case

    def _list_weights(self) -> dict[str, Tensor]:
        models, roles = self.learner.models, self.learner.updater.first_roles()
        return {
            f"{role}/{name}": tensor
            for role in roles
            for name, tensor in role_weights(models[role], role).items()
        }

    def validate(self) -> dict[str, float]:
        """Mean score now (one number for all ranks), kept with the weights if it is the best.

        `validation_fall` is how far it lies below the best one, with its standard error over the same cases.
        """
        rewards, metrics = self.learner.validate(self.scenarios)
        reward = sum(rewards) / len(rewards)
        if self.offer(self.learner.num_steps, reward):
            self.rewards = rewards
        falls = [best - now for best, now in zip(self.rewards, rewards, strict=True)]
        error = statistics.stdev(falls) / math.sqrt(len(falls)) if len(falls) > 1 else 0.0
        return {
            "validation_reward": reward,
            "best_step": float(self.best_step),
            "validation_fall": statistics.fmean(falls),
            "validation_fall_error": error,
            **metrics,
        }

    def restore(self) -> int:
        """Give the models the best validated weights back; returns the step that the weights are of."""
        step = super().restore()
        self.learner.updater.sync_actors()
        return self.learner.num_steps if step < 0 else step

    def state(self) -> dict[str, Any]:
        return {**super().state(), "rewards": self.rewards}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.rewards = list(state["rewards"])

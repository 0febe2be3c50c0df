"""Keeps the weights that do best on the validation split, sampled as they are trained."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from training.rl.loop import RLLearner
from training.rl.role_weights import load_role_weights, place_role_weights, role_weights


class BestWeights:
    """The best validation so far with a copy of its weights; a Stateful part of a checkpoint."""

    def __init__(self, learner: RLLearner, scenarios: Sequence[Any], *, patience: int = 0) -> None:
        """`patience`: validations in a row without a better one that end the stage, 0 never does."""
        self.learner, self.scenarios, self._patience = learner, scenarios, patience
        self.reward: float | None = None
        self.rewards: list[float] = []  # case by case
        self.step = 0
        self.weights: dict[str, dict[str, torch.Tensor]] = {}
        self._num_worse = 0

    @property
    def should_stop(self) -> bool:
        """Whether the last `patience` validations were no better than the best one before them."""
        return 0 < self._patience <= self._num_worse

    def validate(self) -> dict[str, float]:
        """Mean score now (one number for all ranks), kept with the weights if it is the best.

        `validation_fall` is how far it lies below the best one, with its standard error over the same cases.
        """
        rewards, metrics = self.learner.validate(self.scenarios)
        reward = sum(rewards) / len(rewards)
        if self.reward is None or reward > self.reward:
            self.reward, self.rewards, self.step, self._num_worse = reward, rewards, self.learner.num_steps, 0
            models, roles = self.learner.models, self.learner.updater.first_roles()
            self.weights = {
                role: {name: tensor.clone() for name, tensor in role_weights(models[role], role).items()}
                for role in roles
            }
        else:
            self._num_worse += 1
        falls = [best - now for best, now in zip(self.rewards, rewards, strict=True)]
        error = statistics.stdev(falls) / math.sqrt(len(falls)) if len(falls) > 1 else 0.0
        return {
            "validation_reward": reward,
            "best_step": float(self.step),
            "validation_fall": statistics.fmean(falls),
            "validation_fall_error": error,
            **metrics,
        }

    def restore(self) -> int:
        """Give the models the best validated weights back; returns the step that the weights are of."""
        for role, stored in self.weights.items():
            load_role_weights(self.learner.models[role], role, stored)
        self.learner.updater.sync_actors()
        return self.learner.num_steps if self.reward is None else self.step

    def state(self) -> dict[str, Any]:
        """Best reward, step and weights."""
        return {
            "reward": self.reward,
            "rewards": self.rewards,
            "step": self.step,
            "weights": self.weights,
            "num_worse": self._num_worse,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""
        self.reward, self.rewards, self.step = state["reward"], list(state["rewards"]), state["step"]
        self._num_worse = state["num_worse"]
        self.weights = {
            role: place_role_weights(self.learner.models[role], role, stored)
            for role, stored in state["weights"].items()
        }

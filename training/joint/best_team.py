"""Keeps the weights of the best team by greedy play on the validation split, by the protocol in training."""

import math
import statistics
from collections.abc import Mapping
from typing import Any

import torch

from scenarios.team import TeamScenario
from training.joint.marl import JointLearner
from training.joint.role_weights import load_role_weights, place_role_weights, role_weights


class BestTeam:
    """The best validation so far with a copy of its weights."""

    def __init__(self, learner: JointLearner, scenarios: list[TeamScenario]) -> None:
        self.learner, self.scenarios = learner, scenarios
        self.reward: float | None = None
        self.rewards: list[float] = []  # case by case
        self.step = 0
        self.weights: dict[str, dict[str, torch.Tensor]] = {}

    def validate(self) -> dict[str, float]:
        """Mean team reward now (one number for all ranks), kept with the weights where it is the best.

        `validation_fall` is how far it lies below the best one, with its standard error over the same cases.
        """
        learner = self.learner
        groups = learner.play_greedily(self.scenarios, "validation")
        rewards = [group.report_sets[0].rewards[0] for group in learner.scorer.score(groups)]
        reward = sum(rewards) / len(rewards)
        if self.reward is None or reward > self.reward:
            self.reward, self.rewards, self.step = reward, rewards, self.learner.num_steps
            self.weights = {
                role: {name: tensor.clone() for name, tensor in role_weights(model, role).items()}
                for role, model in self.learner.models.items()
            }
        falls = [best - now for best, now in zip(self.rewards, rewards, strict=True)]
        error = statistics.stdev(falls) / math.sqrt(len(falls)) if len(falls) > 1 else 0.0
        return {
            "validation_reward": reward,
            "best_step": float(self.step),
            "validation_fall": statistics.fmean(falls),
            "validation_fall_error": error,
        }

    def restore(self) -> None:
        """Give the learner's models the best weights back; nothing where there was no validation."""
        for role, stored in self.weights.items():
            load_role_weights(self.learner.models[role], role, stored)
        self.learner.updater.sync_actors()

    def state(self) -> dict[str, Any]:
        """Best reward, step and weights."""
        return {
            "reward": self.reward,
            "rewards": self.rewards,
            "step": self.step,
            "weights": self.weights,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""
        self.reward, self.rewards, self.step = state["reward"], list(state["rewards"]), state["step"]
        self.weights = {
            role: place_role_weights(self.learner.models[role], role, stored)
            for role, stored in state["weights"].items()
        }

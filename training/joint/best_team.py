"""Keeps the best team by validation: greedy play on the validation split, and its best weights."""

from collections.abc import Mapping
from typing import Any

import torch

from evaluation.scoring.assess import play_team
from scenarios.team import TeamScenario
from simulator.reward import score_episode
from training.joint.governed_play import demand_all
from training.joint.marl import JointLearner, full_weights, load_role_weights


class BestTeam:
    """The best validation so far with a copy of its weights."""

    def __init__(self, learner: JointLearner, scenarios: list[TeamScenario]) -> None:
        self.learner, self.scenarios = learner, scenarios
        self.reward: float | None = None
        self.step = 0
        self.weights: dict[str, dict[str, torch.Tensor]] = {}

    def validate(self) -> dict[str, float]:
        """Mean team reward now (one number for all ranks), kept with the weights where it is the best."""
        rewards = self._play()
        reward = sum(rewards) / len(rewards)
        if self.reward is None or reward > self.reward:
            self.reward, self.step = reward, self.learner.num_steps
            self.weights = {
                role: {name: tensor.clone() for name, tensor in full_weights(model, role).items()}
                for role, model in self.learner.models.items()
            }
        return {"validation_reward": reward, "best_step": float(self.step)}

    def _play(self) -> list[float]:
        """The team reward of every case under the protocol that is trained."""
        config, joint_play = self.learner.config, self.learner.joint_play
        engine = self.learner.make_engine()
        if config.protocol == "full":
            played = joint_play.play_greedily(engine, self.scenarios, "validation")
            return demand_all(played, len(self.scenarios))
        episodes = play_team(
            self.scenarios,
            engine=engine,
            chat=self.learner.chat,
            temperature=0.0,
            max_completion_tokens=config.max_completion_tokens,
            stream="validation",
            rounds=config.rounds,
        )
        weights = joint_play.reward_weights
        return [score_episode(s, e, weights).reward for s, e in zip(self.scenarios, episodes, strict=True)]

    def restore(self) -> None:
        """Give the learner's models the best weights back; nothing where there was no validation."""
        for role, stored in self.weights.items():
            load_role_weights(self.learner.models[role], role, stored)
        self.learner.sync_actors()

    def state(self) -> dict[str, Any]:
        """Best reward, step and weights."""
        return {"reward": self.reward, "step": self.step, "weights": self.weights}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""
        self.reward, self.step = state["reward"], state["step"]
        self.weights = {role: dict(tensors) for role, tensors in state["weights"].items()}

"""PPO of one role: rollouts, a score per trajectory, KL in the reward, a value head, clipped updates.

One step, top to bottom:

    scenarios -- play --> episodes -- score --> rewards of tokens -- value head --> advantages
              -- update --> weights

Loss, clip, minibatches and optimizer are those of joint training (training/joint/update.py), and the value
head is its critic. The policy and the value head share no weights.
Source: arXiv:1707.06347; KL in the reward and advantages of mean 0 and spread 1 as in arXiv:2203.02155.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from transformers import PreTrainedModel

from scenarios.base import Scenario
from simulator.agents.solo import SoloEpisode
from training.config.feedback_config import PpoConfig
from training.config.grpo_config import GrpoConfig
from training.config.marl_config import CreditConfig, MarlConfig, MarlLossConfig
from training.joint.credit.critic import Critic
from training.joint.update import TeamUpdater
from training.learner.rows import TrainingRow, make_row
from training.roles.completion_logprobs import ReferencePolicy
from training.roles.rollouts import Rollouts, episode_reward, read_transcripts
from training.roles.scoring import FaultWindow, Judge, add_model_scores, score_all

LEAST_SPREAD = 1e-6


def joint_config(config: PpoConfig, rollouts: GrpoConfig) -> MarlConfig:
    """The settings of the learner that PPO shares with joint training."""
    return MarlConfig(
        learning_rate=config.learning_rate,
        updates_per_batch=config.updates_per_batch,
        minibatches=config.minibatches,
        temperature=rollouts.temperature,
        max_completion_tokens=rollouts.max_completion_tokens,
        loss=MarlLossConfig(kind="dapo", clip_low=config.clip, clip_high=config.clip),
        credit=CreditConfig(
            gae_lambda=config.gae_lambda,
            critic_learning_rate=config.critic_learning_rate,
            critic_epochs=config.critic_epochs,
        ),
    )


class PpoLearner:
    """A role's policy, its value head and what PPO compares it with; a Stateful part of a checkpoint."""

    def __init__(
        self,
        model: PreTrainedModel,
        config: PpoConfig,
        *,
        role: str,
        rollouts: Rollouts,
        grpo: GrpoConfig,
        judge: Judge | None,
        seed: int,
    ) -> None:
        """`model` has the weights before the stage: the reference of KL. `grpo` says how roles play."""
        self.model, self.config, self._role = model, config, role
        self._rollouts, self._grpo, self._judge = rollouts, grpo, judge
        joint = joint_config(config, grpo)
        self._updater = TeamUpdater({role: model}, joint, seed=seed)
        self._critic = Critic(model.config.hidden_size, joint, next(model.parameters()).device)
        self._reference = ReferencePolicy(model)
        self._faults = FaultWindow()

    @property
    def num_steps(self) -> int:
        """Batches learnt from so far."""
        return self._updater.num_steps

    def step(self, scenarios: Sequence[Scenario]) -> dict[str, float]:
        """Play these scenarios and learn from them; returns what to log.

        Raises:
            FaultyRunError: too many episodes got no reward (training/roles/scoring.py).
        """
        played = self._rollouts.play(
            self.model,
            scenarios,
            version=f"{self._role}@{self.num_steps}",
            temperature=self._grpo.temperature,
            stream=f"ppo/{self.num_steps}",
        )
        episodes, parts = self._reward(played)
        rewards = [one["total"] for one in parts]
        if not episodes:
            self._updater.num_steps += 1
            return {"episodes_left_out": 1.0}
        rows, kl = self.make_rows(episodes, rewards)
        credited, error = self._critic.credit(self.model, rows)
        stats = self._updater.update({self._role: whiten(credited)})[self._role]
        return {
            **{f"reward/{part}": statistics.fmean(one[part] for one in parts) for part in parts[0]},
            "verified": statistics.fmean(one.verdict.reward for one in episodes),
            "exact": statistics.fmean(one.verdict.exact for one in episodes),
            "kl_to_start": kl,
            "critic_error": error,
            "clip_fraction": stats.clip_fraction,
            "entropy": stats.entropy,
            "grad_norm": stats.grad_norm,
            "loss": stats.loss,
            "episodes_left_out": 1 - len(episodes) / len(played),
        }

    def make_rows(
        self, episodes: Sequence[SoloEpisode], rewards: Sequence[float]
    ) -> tuple[list[TrainingRow], float]:
        """Rows with a reward on every own token, and the mean KL estimate in nats per token.

        The reward of a token is minus kl_coefficient times the difference of its log-probability from the
        reference's; on the last one stands the episode's reward as well.
        """
        rows = [make_row(one.trajectory, reward) for one, reward in zip(episodes, rewards, strict=True)]
        pairs = [(row.token_ids, row.loss_mask) for row in rows]
        reference = self._reference.logprobs(self.model, pairs, temperature=self._grpo.temperature).tolist()
        found, start, gaps = [], 0, []
        for row in rows:
            own = reference[start : start + row.num_own]
            start += row.num_own
            gap = [now - before for now, before in zip(row.own_logprobs(), own, strict=True)]
            gaps += gap
            found.append(with_token_rewards(row, [-self.config.kl_coefficient * one for one in gap]))
        return found, statistics.fmean(gaps) if gaps else 0.0

    def _reward(
        self, played: Sequence[SoloEpisode | Exception]
    ) -> tuple[list[SoloEpisode], list[Mapping[str, float]]]:
        """The episodes that have a reward, and its parts; the others are counted."""
        grpo, config = self._grpo, self.config
        scored = score_all(played, lambda one: episode_reward(one, grpo), timeout_s=grpo.reward_timeout_s)
        weights = (config.verifier_weight, config.model_weight)
        scored = add_model_scores(scored, read_transcripts(played), self._judge, weights)
        kept = [
            (episode, one.parts)
            for episode, one in zip(played, scored, strict=True)
            if isinstance(episode, SoloEpisode) and one.parts is not None
        ]
        self._faults.take(scored, num_usable=len(kept))
        return [episode for episode, _ in kept], [parts for _, parts in kept]

    def state(self) -> Mapping[str, Any]:
        """Weights, optimizers and position."""
        return {
            "updater": self._updater.state(),
            "critic": self._critic.state(),
            "faults": self._faults.state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""
        self._updater.load_state(state["updater"])
        self._critic.load_state(state["critic"])
        self._faults.load_state(state["faults"])


def with_token_rewards(row: TrainingRow, rewards: Sequence[float]) -> TrainingRow:
    """The row with these rewards on its own tokens, the row's own reward added on the last.

    Raises:
        ValueError: not one reward per own token.
    """
    if len(rewards) != row.num_own:
        raise ValueError(f"{len(rewards)} rewards for {row.num_own} own tokens")
    own = iter([*rewards[:-1], rewards[-1] + row.advantage])
    return replace(row, token_rewards=tuple(next(own) if bit else 0.0 for bit in row.loss_mask))


def whiten(rows: Sequence[TrainingRow]) -> list[TrainingRow]:
    """The rows with token advantages of mean 0 and standard deviation 1 over all own tokens."""
    values = [value for row in rows for value in row.own_advantages()]
    mean = statistics.fmean(values)
    spread = max(LEAST_SPREAD, math.sqrt(statistics.fmean((value - mean) ** 2 for value in values)))
    found = []
    for row in rows:
        own = iter((value - mean) / spread for value in row.own_advantages())
        found.append(replace(row, token_advantages=tuple(next(own) if bit else 0.0 for bit in row.loss_mask)))
    return found

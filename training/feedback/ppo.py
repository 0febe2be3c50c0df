"""PPO of one role on the RL loop: one episode per scenario, KL in the reward, a value head for advantages.

Its loop, loss, clip, minibatches and optimizer are those of GRPO and joint training (training/rl/loop.py).
The policy and the value head share no weights.
Source: arXiv:1707.06347; KL in the reward and advantages of mean 0 and spread 1 as in arXiv:2203.02155.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from training.config.feedback_config import PpoConfig
from training.config.grpo_config import GrpoConfig
from training.config.rl_sections import CreditConfig, LossConfig, RLConfig
from training.learner.learner import LossStats
from training.learner.rows import TrainingRow, make_row
from training.rl.loop import Algorithm, RLLearner
from training.rl.records import ScoredSoloGroup
from training.rl.solo.algorithm import SoloMonitor, usable_groups
from training.rl.solo.play import SoloPlayer
from training.rl.solo.score import Judge, SoloScorer
from training.rl.update import PolicyUpdater
from training.roles.completion_logprobs import ReferencePolicy


def make_ppo_settings(config: PpoConfig, grpo: GrpoConfig) -> RLConfig:
    """The settings of the loop; `grpo` says how roles play."""
    return RLConfig(
        max_steps=config.max_steps,
        learning_rate=config.learning_rate,
        updates_per_batch=config.updates_per_batch,
        minibatches=config.minibatches,
        temperature=grpo.temperature,
        max_completion_tokens=grpo.max_completion_tokens,
        loss=LossConfig(clip_low=config.clip, clip_high=config.clip),
        credit=CreditConfig(
            estimator="gae",
            gae_lambda=config.gae_lambda,
            critic_learning_rate=config.critic_learning_rate,
            critic_epochs=config.critic_epochs,
        ),
        memory=grpo.memory,
    )


def make_ppo_learner(
    models: Mapping[str, Any],
    config: PpoConfig,
    grpo: GrpoConfig,
    *,
    player: SoloPlayer,
    judge: Judge | None,
    **options: Any,
) -> RLLearner:
    """The learner of a role's PPO; `models` have the weights that KL is measured from."""
    scorer = SoloScorer(grpo, judge=judge, weights=(config.verifier_weight, config.model_weight))
    credit = PpoCredit(next(iter(models.values())), config, temperature=grpo.temperature)
    monitor = PpoMonitor(
        credit, grpo.changed(curriculum=False), models, scorer=scorer, families=player.families
    )
    algorithm = Algorithm(
        name="ppo",
        episodes_per_case=1,
        player=replace(player, group_size=1),
        scorer=scorer,
        credit=credit,
        monitor=monitor,
    )
    updater = PolicyUpdater(models, make_ppo_settings(config, grpo), pools_roles=True)
    return RLLearner(updater, algorithm, whitens=True, **options)


class PpoCredit:
    """Rows with a reward on every own token: a price of KL, and on the last one the episode's reward."""

    def __init__(self, model: nn.Module, config: PpoConfig, *, temperature: float) -> None:
        self._model, self._config, self._temperature = model, config, temperature
        self._reference = ReferencePolicy(model)
        self.kl = 0.0  # of the latest rows, in nats per token

    def assign(self, roles: Sequence[str], groups: Sequence[ScoredSoloGroup]) -> dict[str, list[float]]:
        """Every role's rewards, of which the value heads make advantages."""
        return {
            role: [total for group in usable_groups(role, groups) for total in group.totals] for role in roles
        }

    def make_rows(
        self, groups: Sequence[ScoredSoloGroup], advantages: Mapping[str, Sequence[float]]
    ) -> dict[str, list[TrainingRow]]:
        """One row per episode with rewards on its tokens.

        The reward of a token is minus kl_coefficient times the difference of its log-probability from the
        reference's; on the last one stands the episode's reward as well.
        """
        rows = {
            role: [
                make_row(episode.trajectory, total)
                for group, total in zip(usable_groups(role, groups), of_role, strict=True)
                for episode in group.played
            ]
            for role, of_role in advantages.items()
        }
        every = [row for of_role in rows.values() for row in of_role]
        pairs = [(row.token_ids, row.loss_mask) for row in every]
        reference = self._reference.logprobs(self._model, pairs, temperature=self._temperature).tolist()
        own = [value for row in every for value in row.own_logprobs()]
        gaps = [now - before for now, before in zip(own, reference, strict=True)]
        self.kl = statistics.fmean(gaps) if gaps else 0.0
        prices = iter([-self._config.kl_coefficient * gap for gap in gaps])
        return {
            role: [with_token_rewards(row, [next(prices) for _ in range(row.num_own)]) for row in of_role]
            for role, of_role in rows.items()
        }


class PpoMonitor(SoloMonitor):
    """Metrics and alarms of GRPO, with the divergence that was charged."""

    def __init__(self, credit: PpoCredit, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._credit = credit

    def measure(
        self,
        groups: Sequence[ScoredSoloGroup],
        rows: Mapping[str, Sequence[TrainingRow]],
        stats: Mapping[str, LossStats],
    ) -> dict[str, float]:
        """Metrics of the rollouts, the loss and the divergence."""
        return super().measure(groups, rows, stats) | {"kl_to_start": self._credit.kl}


def with_token_rewards(row: TrainingRow, rewards: Sequence[float]) -> TrainingRow:
    """The row with these rewards on its own tokens, the row's own reward added on the last.

    Raises:
        ValueError: not one reward per own token.
    """
    if len(rewards) != row.num_own:
        raise ValueError(f"{len(rewards)} rewards for {row.num_own} own tokens")
    own = iter([*rewards[:-1], rewards[-1] + row.advantage])
    return replace(row, token_rewards=tuple(next(own) if bit else 0.0 for bit in row.loss_mask))

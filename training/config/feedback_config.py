"""Settings of the stages that learn from labels; a run stores those of a stage beside its labels."""

from typing import Annotated, Literal

from pydantic import Field

from training.config.rl_config import GrpoConfig
from training.config.section import GroupSize, PositiveCount, Rate, Section, Share, Weight


class FeedbackConfig(Section):
    """Settings of all stages that learn from labels."""

    source: Literal["sft", "grpo", "marl"] = "grpo"
    """Stage whose weights are trained on."""


class CorrectionsConfig(FeedbackConfig):
    """SFT on what reviewers wrote and approved."""

    with_approved: bool = True
    """Shows answers that were approved, too: corrected ones alone teach doubt in what is right."""
    epochs: PositiveCount = 3
    """Passes over the corrections."""
    batch_size: PositiveCount = 16
    """Corrections per optimizer step."""
    learning_rate: Rate = 1e-4
    """Peak rate of AdamW."""


class DpoConfig(FeedbackConfig):
    """DPO on comparisons."""

    epochs: PositiveCount = 3
    """Passes over the labels."""
    batch_size: GroupSize = 16
    """Labels per optimizer step."""
    learning_rate: Rate = 1e-4
    """Peak rate of AdamW."""
    beta: Annotated[float, Field(gt=0)] = 0.1
    """Weight of the KL divergence to the weights before this stage."""
    sft_weight: Weight = 0.0
    """Weight of SFT on the preferred answers, by its loss per token: DPO alone may lower both answers."""


class RewardModelConfig(FeedbackConfig):
    """A reward model on comparisons."""

    epochs: PositiveCount = 4
    """Passes over the comparisons."""
    batch_size: PositiveCount = 16
    """Comparisons per optimizer step."""
    learning_rate: Rate = 3e-4
    """Peak rate of AdamW."""
    validation_share: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share of the comparisons that is kept out of training, to measure accuracy."""


class PpoConfig(FeedbackConfig):
    """PPO of one role on the score of its reward model."""

    max_steps: PositiveCount = 60
    """Batches of rollouts."""
    prompts_per_step: PositiveCount = 32
    """Scenarios per batch, two trajectories each."""
    learning_rate: Rate = 2e-4
    """Learning rate of the policy."""
    updates_per_batch: PositiveCount = 2
    """Passes over a batch."""
    minibatches: PositiveCount = 2
    """Parts that a batch is cut into, with an update after each."""
    kl_coefficient: Weight = 0.02
    """Weight of the KL divergence to the weights before this stage."""
    model_share: Share = 1.0
    """Share of the reward that is the reward model's score; the rest is the verifier's reward."""

    def as_grpo(self, grpo: GrpoConfig) -> GrpoConfig:
        """Settings of the RL loop: advantages of a value head, KL in the loss; `grpo` says how roles play."""
        return grpo.changed(
            **self.model_dump(exclude={"source", "kl_coefficient"}),
            group_size=2,
            trained_per_group=0,
            curriculum=False,
            loss__kl_coefficient=self.kl_coefficient,
            credit__estimator="gae",
            guards__validate_every=0,
            guards__patience=0,
        )


FEEDBACK_CONFIGS: dict[str, type[FeedbackConfig]] = {
    "corrections": CorrectionsConfig,
    "dpo": DpoConfig,
    "reward": RewardModelConfig,
    "ppo": PpoConfig,
}

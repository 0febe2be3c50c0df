"""Settings of the stages that learn from labels; a run stores those of a stage beside its labels."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from training.config.section import ClipRange, GroupSize, PositiveCount, Rate, Section, Weight


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


class PreferenceConfig(FeedbackConfig):
    """Preference learning, by DPO on comparisons or KTO on verdicts."""

    epochs: PositiveCount = 3
    """Passes over the labels."""
    batch_size: GroupSize = 16
    """Labels per optimizer step, 2 or more: KTO estimates the KL divergence within a batch."""
    learning_rate: Rate = 1e-4
    """Peak rate of AdamW."""
    beta: Annotated[float, Field(gt=0)] = 0.1
    """Weight of the KL divergence to the weights before this stage."""


class DpoConfig(PreferenceConfig):
    """DPO on comparisons."""

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
    prompts_per_step: PositiveCount = 64
    """Scenarios per batch, one trajectory each."""
    learning_rate: Rate = 2e-4
    """Learning rate of the policy."""
    updates_per_batch: PositiveCount = 2
    """Passes over a batch."""
    minibatches: PositiveCount = 2
    """Parts that a batch is cut into, with an update after each."""
    clip: ClipRange = 0.2
    """The probability ratio is held to 1 - clip to 1 + clip."""
    kl_coefficient: Weight = 0.02
    """Price of a nat of divergence from the weights before this stage, taken off every token's reward."""
    gae_lambda: Annotated[float, Field(ge=0, le=1)] = 0.95
    """Decay of the advantage along a trajectory's own tokens."""
    critic_learning_rate: Rate = 1e-2
    """Learning rate of the value head."""
    critic_epochs: PositiveCount = 4
    """Passes of the value head over a batch."""
    model_weight: Weight = 1.0
    """Weight of the reward model's score."""
    verifier_weight: Weight = 0.0
    """Weight of the verifier's reward."""

    @model_validator(mode="after")
    def _check_weights(self) -> Self:
        if not self.model_weight and not self.verifier_weight:
            raise ValueError("model_weight and verifier_weight are both 0: nothing is rewarded")
        return self


FEEDBACK_CONFIGS: dict[str, type[FeedbackConfig]] = {
    "corrections": CorrectionsConfig,
    "dpo": DpoConfig,
    "kto": PreferenceConfig,
    "reward": RewardModelConfig,
    "ppo": PpoConfig,
}

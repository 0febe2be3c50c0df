"""Sections that GRPO of a role and joint training share: optimizer, loss, credit, guards and memory."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from training.config.section import (
    ClipRange,
    Count,
    PositiveCount,
    Rate,
    Section,
    Temperature,
    Weight,
    check_patience,
)


class LossConfig(Section):
    """Loss of a policy-gradient stage: token weights, clipping, KL, correction for the engine's rounding."""

    kind: Literal["grpo", "gspo", "dr_grpo", "dapo"] = "dapo"
    """Token weight: 1 / all own tokens (dapo), its row's (grpo; gspo has a ratio per row), most (dr_grpo)."""
    clip_low: ClipRange = 0.2
    """The probability ratio is clipped below at 1 - clip_low."""
    clip_high: ClipRange = 0.2
    """The probability ratio is clipped above at 1 + clip_high."""
    kl_coefficient: Weight = 0.0
    """Weight of the KL divergence to the policy before this stage; 0 loads no reference."""
    importance: Literal["ratio", "token", "call"] = "ratio"
    """Correction for what the engine sampled: the ratio, or truncated weights; vLLM: `call` if not given."""

    @property
    def clip_level(self) -> Literal["token", "sequence"]:
        """Return "token" for tokens' own ratios, "sequence" for a row's geometric mean (arXiv:2507.18071)."""
        return "sequence" if self.kind == "gspo" else "token"


class CreditConfig(Section):
    """Advantages from rewards that are compared with each other."""

    estimator: Literal["dr_grpo", "grpo", "rloo", "reinforce_pp", "gae"] = "dr_grpo"
    """Estimator of advantages from scores; training/rl/credit/estimators.py has a function for each."""


class GuardsConfig(Section):
    """Validation of a stage on cases of the validation split; the best weights are kept."""

    validate_every: Count = 0
    """Steps between validations by sampled plays; the best weights are kept. 0 never validates."""
    validation_scenarios: PositiveCount = 64
    """Scenarios of the validation split that are played each time."""
    patience: Count = 0
    """Validations in a row without a better one that end the stage; 0 never does."""

    @model_validator(mode="after")
    def _check_patience(self) -> Self:
        check_patience(self.patience, self.validate_every)
        return self


class MemoryConfig(Section):
    """Forward passes and sharding of the learner: memory and time, never what is learnt."""

    micro_batch_tokens: PositiveCount = 16_384
    """Padded tokens per forward pass of the learner; changes memory, never the result."""
    row_layout: Literal["padded", "shared_prompt"] = "shared_prompt"
    """Rows side by side with padding, or end to end with every common prompt computed once."""
    sharding: Literal["none", "fsdp2", "fsdp2_offload"] = "none"
    """Under torchrun a rank holds all weights (none) or its part of them: on the GPU (fsdp2), on the host."""
    bf16: bool = False
    """Whether passes multiply float32 weights in bfloat16; gradients' sums and optimizer stay float32."""
    logit_rows: Count = 0
    """Own tokens whose logits are held at once; 0 holds those of a whole forward pass."""


class RLConfig(Section):
    """What the RL loop reads, whoever plays: a role alone or the team."""

    max_steps: Count = 100
    """Batches of rollouts that are played and learnt from; 0 leaves the stage out."""
    learning_rate: Rate = 3e-4
    """Peak learning rate."""
    rate_schedule: Literal["constant", "linear"] = "linear"
    """Learning rates as they are (constant), or down to 0 in a straight line over max_steps (linear)."""
    warm_up_steps: Count = 0
    """Steps over which the learning rates rise to their peak."""
    adam_epsilon: Rate = 1e-4
    """Adam's epsilon: near a weight's usual gradient (1e-4 here) it keeps small, noisy gradients small."""
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    """Gradients of one set of weights are scaled down to this norm."""
    updates_per_batch: PositiveCount = 1
    """Passes over a step's rows; only from the second update on can a ratio leave the clip's range."""
    minibatches: PositiveCount = 1
    """Parts that a step's rows are cut into, with an update after each."""
    max_staleness: Count = 0
    """Steps that rollouts may be behind the weights: 0 plays and trains in turn, exactly."""
    temperature: Temperature = 1.0
    """Sampling temperature of the rollouts."""
    max_completion_tokens: PositiveCount = 56
    """Tokens per turn before it is cut off."""
    loss: LossConfig = LossConfig()
    credit: CreditConfig = CreditConfig()
    guards: GuardsConfig = GuardsConfig()
    memory: MemoryConfig = MemoryConfig()

    @property
    def max_row_tokens(self) -> int:
        """Most own tokens of a row: what loss `dr_grpo` divides by."""
        return self.max_completion_tokens

    @property
    def needs_reference(self) -> bool:
        """Whether the weights before this stage are kept at hand, for KL."""
        return self.loss.kl_coefficient > 0

    @model_validator(mode="after")
    def _check_staleness(self) -> Self:
        if self.max_staleness and self.loss.importance == "ratio":
            raise ValueError("max_staleness needs a correction for it: set loss.importance to token or call")
        return self

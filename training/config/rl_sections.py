"""Sections that GRPO and joint training share: the loss and the guards of a stage."""

from typing import Annotated, Literal

from pydantic import Field

from training.config.section import ClipRange, Count, PositiveCount, Section, Weight


class LossConfig(Section):
    """Clipped surrogate and KL term of a policy-gradient stage."""

    kind: Literal["grpo", "dr_grpo", "dapo"] = "grpo"
    """Token weight: 1 / all own tokens (dapo), 1 / its row's (grpo), 1 / max_completion_tokens (dr_grpo)."""
    clip_low: ClipRange = 0.2
    """The probability ratio is clipped below at 1 - clip_low."""
    clip_high: ClipRange = 0.2
    """The probability ratio is clipped above at 1 + clip_high."""
    kl_coefficient: Weight = 0.0
    """Weight of the KL divergence to the policy before this stage; 0 loads no reference."""
    importance_cap: Annotated[float, Field(ge=1)] = 2.0
    """Greatest importance weight."""


class GuardsConfig(Section):
    """Validation of a stage on cases of the validation split; the best weights are kept."""

    validate_every: Count = 0
    """Steps between greedy validations; the best weights are kept. 0 never validates."""
    validation_scenarios: PositiveCount = 64
    """Scenarios of the validation split that are played each time."""

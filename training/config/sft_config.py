"""`sft`: supervised fine-tuning of each role."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from roles.errors import unknown
from roles.registry import ROLES
from training.config.section import (
    Count,
    PositiveCount,
    Rate,
    Section,
    check_micro_batch,
    check_patience,
)


class SftConfig(Section):
    """Supervised fine-tuning of each role on demonstrations."""

    max_steps: Count = 800
    """Optimizer steps per role; 0 leaves the base model as it is."""
    transfer_from: str | None = None
    """Role that is trained first, from whose SFT weights all others start; null: every role from the base."""
    start_from: str | None = None
    """Another run's folder, from whose SFT weights on the same base this SFT goes on; null: from the base."""
    refused_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of demonstrations in which a tool refuses a wrong call, not learnt from, before the right one."""
    batch_size: PositiveCount = 16
    """Demonstrations per optimizer step; packed rows with row_layout packed."""
    optimizer: Literal["muon", "adamw"] = "muon"
    """`muon` (2-D weights by Muon, the rest by AdamW) or `adamw` alone."""
    muon_learning_rate: Rate = 0.01
    """Peak rate of Muon; unused with adamw."""
    learning_rate: Rate = 0.004
    """Peak rate of AdamW."""
    micro_batch_size: Count = 0
    """Demonstrations per forward pass: less memory, same step; it divides batch_size. 0 takes all at once."""
    row_layout: Literal["padded", "packed", "shared_prompt"] = "shared_prompt"
    """Rows side by side; end to end, 1024 tokens a row; or end to end with their common prompts once."""
    validate_every: Count = 0
    """Steps between validations, of which the best weights are kept; 0 keeps the last weights."""
    patience: Count = 0
    """Validations in a row without a better one that end the stage; 0 never does."""

    @model_validator(mode="after")
    def _check_options(self) -> Self:
        if self.transfer_from is not None and self.transfer_from not in ROLES:
            raise unknown("sft.transfer_from", self.transfer_from, list(ROLES))
        if self.start_from is not None and self.transfer_from is not None:
            raise ValueError(
                "start_from gives every role its own weights, transfer_from another role's: leave one out"
            )
        check_micro_batch(self.micro_batch_size, self.batch_size, "batch_size")
        check_patience(self.patience, self.validate_every)
        return self

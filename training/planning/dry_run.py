"""A config's model without its weights: built on the meta device, adapters attached, parameters counted."""

from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from training.config.run_config import RunConfig
from training.models.adapters import attach

ADAM_BYTES = 4 + 4 + 8  # float32 weight, its gradient, two moments
GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """What a rank holds before the first activation.

    Example: DryRun(total=3_085_938_688, trained=59_867_136, frozen_bytes=6.2e9, trained_bytes=9.6e8, ranks=1)
    """

    total: int  # parameters of the base
    trained: int  # parameters that an optimizer step of one owner changes
    frozen_bytes: float  # per rank, of weights that stay as they are
    trained_bytes: float  # per rank, weights, gradients and optimizer state of what is trained
    ranks: int

    def describe(self) -> str:
        """One line with the counts and GiB per rank."""
        counts = f"{self.total / 1e9:.3f} B parameters, {self.trained / 1e6:.1f} M trained"
        frozen, trained = self.frozen_bytes / GIB, self.trained_bytes / GIB
        memory = f"frozen {frozen:.2f} GiB, trained with optimizer {trained:.2f} GiB"
        return f"{counts} ({self.trained / self.total:.2%}); per rank of {self.ranks}: {memory}"


def dry_run(config: RunConfig, model_config: Path, *, ranks: int = 1) -> DryRun:
    """Build the model of `model_config` (a folder with config.json) as `config` would train it.

    With `marl.memory.sharding` fsdp2 what is trained is divided by the ranks; a frozen base stands on each.
    """
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(
            AutoConfig.from_pretrained(model_config), dtype=getattr(torch, config.model.dtype)
        )
        total = sum(parameter.numel() for parameter in model.parameters())
        if config.model.adapter != "none":
            model = attach(model, config.model, seed=0)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    frozen = [parameter for parameter in model.parameters() if not parameter.requires_grad]
    share = ranks if config.marl.memory.sharding == "fsdp2" else 1
    per_weight = 0.55 if config.model.adapter == "qlora" else None  # 4 bits, and the scales of their blocks
    return DryRun(
        total=total,
        trained=sum(parameter.numel() for parameter in trained),
        frozen_bytes=sum(p.numel() * (per_weight or p.element_size()) for p in frozen),
        trained_bytes=sum(p.numel() for p in trained) * ADAM_BYTES / share,
        ranks=ranks,
    )

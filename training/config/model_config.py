"""`model`: the base model of every role and what of it is trained."""

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from roles.errors import unknown
from scenarios.base import Style
from training.config.section import PositiveCount, Section

PRESETS = ("tiny", "smollm2-135m", "qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-3b", "qwen2.5-7b")


class ModelConfig(Section):
    """Base model of every role. The five sizes are those of the `tiny` preset; others bring their own."""

    preset: str = "tiny"
    """`tiny` (built from config, no download), a named preset, or a hub id or folder written with a slash."""
    hidden_size: Annotated[int, Field(ge=16, le=65_536)] = 128
    """Width of the tiny model, 16 or more; a multiple of 2 * num_heads."""
    num_layers: Annotated[int, Field(ge=1, le=1024)] = 3
    """Transformer blocks of the tiny model."""
    num_heads: PositiveCount = 4
    """Attention heads of the tiny model."""
    intermediate_size: PositiveCount = 320
    """Width of the tiny model's feed-forward layers."""
    vocab_size: Annotated[int, Field(ge=256, le=65_536)] = 512
    """Most tokens that the tiny model's tokenizer may have."""
    prompts: Style = "short"
    """Texts: `full` for any chat model, `short` for a model trained on them (helps included, see docs)."""
    questions: Annotated[int, Field(ge=0, le=10)] | None = None
    """Most questions of ReconcileGPT to the seats per case; null: one in `full` prompts, none in `short`."""
    adapter: Literal["none", "lora", "qlora"] = "none"
    """Weights to train: all (none), LoRA on a frozen base, or LoRA on a 4-bit base (CUDA only)."""
    adapter_sharing: Literal["per_role", "shared"] = "per_role"
    """Each role trains its own weights, or all roles share one set: whole weights, or one adapter."""
    lora_rank: PositiveCount = 16
    """Rank of the LoRA matrices."""
    lora_alpha: PositiveCount = 32
    """Scale of what LoRA adds: alpha / rank."""
    lora_targets: tuple[str, ...] = Field(default=("all-linear",), min_length=1)
    """Modules that LoRA is put on, by name; `all-linear` is every linear layer but the output head."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of a frozen base; what is trained is always float32."""
    gradient_checkpointing: bool = False
    """Compute activations again in the backward pass: less memory, about a third more time."""

    @property
    def short_prompts(self) -> bool:
        """Return whether prompts hold the brief alone, without the mandate and the tools' signatures."""
        return self.prompts == "short"

    @field_validator("preset")
    @classmethod
    def _check_preset(cls, preset: str) -> str:
        if preset not in PRESETS and "/" not in preset:
            raise unknown(
                "model.preset", preset, [*PRESETS, "or a hub id such as Qwen/Qwen2.5-0.5B-Instruct"]
            )
        return preset

    @model_validator(mode="after")
    def _check_heads(self) -> Self:
        if self.hidden_size % (2 * self.num_heads):
            raise ValueError(
                f"hidden_size {self.hidden_size} must be a multiple of 2 * num_heads = {2 * self.num_heads}"
            )
        return self

    @model_validator(mode="after")
    def _check_adapter(self) -> Self:
        if self.adapter == "none" and self.dtype != "float32":
            raise ValueError(
                f"dtype {self.dtype!r} is for a frozen base: set adapter to lora or qlora, or leave dtype out"
            )
        if "all-linear" in self.lora_targets and len(self.lora_targets) > 1:
            raise ValueError("lora_targets: all-linear stands alone; leave it out to name modules")
        return self

"""Models of random weights in the shapes that are measured, with five adapters, and ragged rows for them."""

from dataclasses import dataclass
from typing import Any

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from roles.registry import ROLES
from training.config.model_config import ModelConfig
from training.learner.rows import TrainingRow
from training.models.adapters import attach
from training.models.shapes import SHAPES, Shape

TOY = Shape(hidden=64, layers=2, heads=4, kv_heads=2, head_size=16, inner=128, vocab=2048, is_tied=True)
GROUP_SIZE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Size of a measurement: the real one, or the rehearsal of its code on a CPU.

    Example: REAL.shape("qwen2.5-3b").layers == 36, REHEARSAL.shape("qwen2.5-3b") == TOY
    """

    device: str
    dtype: torch.dtype
    is_toy: bool

    def shape(self, preset: str) -> Shape:
        """The preset's shape, or the toy's."""
        return TOY if self.is_toy else SHAPES[preset]

    def choose(self, real: Any, toy: Any) -> Any:
        """One of two values."""
        return toy if self.is_toy else real

    def wait(self) -> None:
        """Return when the device has done what it was given."""
        if self.device == "cuda":
            torch.cuda.synchronize()


REAL = Scale(device="cuda", dtype=torch.bfloat16, is_toy=False)
REHEARSAL = Scale(device="cpu", dtype=torch.float32, is_toy=True)


def list_config_values(shape: Shape) -> dict[str, Any]:
    """Arguments of transformers' `Qwen2Config` for a model of this shape."""
    return {
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.inner,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "tie_word_embeddings": shape.is_tied,
    }


def build_base(shape: Shape, scale: Scale, *, seed: int = 0) -> Any:
    """A Qwen2 of this shape with random weights, made on the device."""
    torch.manual_seed(seed)
    config = Qwen2Config(**list_config_values(shape), max_position_embeddings=8192)
    default = torch.get_default_dtype()
    torch.set_default_dtype(scale.dtype)
    try:
        with torch.device(scale.device):
            return Qwen2ForCausalLM(config)
    finally:
        torch.set_default_dtype(default)


def build_team(shape: Shape, scale: Scale, *, checkpointing: bool = False, spread: float = 0.0) -> Any:
    """The same, frozen, with a float32 adapter per role; with `spread` the adapters change what it says."""
    names = list(ROLES)
    with torch.device(scale.device):
        model: Any = attach(build_base(shape, scale), ModelConfig(adapter="lora"), seed=0, name=names[0])
        for name in names[1:]:
            model.add_adapter(name, model.peft_config[names[0]])
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            parameter.data = parameter.data.float()
            if spread and "lora_B" in name:
                parameter.data.normal_(std=spread)
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return model


def make_rows(
    shape: Shape, *, groups: int, prompt: int, own: tuple[int, int]
) -> dict[str, list[TrainingRow]]:
    """So many groups per role, each of one prompt and ragged completions."""
    generator = torch.Generator().manual_seed(0)
    rows: dict[str, list[TrainingRow]] = {role: [] for role in ROLES}
    for role in ROLES:
        for _ in range(groups):
            start = torch.randint(4, shape.vocab, (prompt,), generator=generator).tolist()
            for place in range(GROUP_SIZE):
                length = own[0] + (own[1] - own[0]) * place // (GROUP_SIZE - 1)
                ids = (*start, *torch.randint(4, shape.vocab, (length,), generator=generator).tolist())
                rows[role].append(
                    TrainingRow(
                        role=role,
                        token_ids=ids,
                        loss_mask=(*[0] * prompt, *[1] * length),
                        sampling_logprobs=(-10.0,) * len(ids),
                        advantage=0.5 - place / (GROUP_SIZE - 1),
                    )
                )
    return rows

"""A joint learner and one micro-batch on the meta device: shapes are real, nothing is computed or held.

    python -m training.planning.distributed_dry_run configs/marl/4xa100.yaml --ranks 4

What it adds up is what one rank holds while it learns; `emads plan` knows time and the other stages.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from roles.registry import ROLES
from training.config.loading import load_config
from training.config.run_config import RunConfig
from training.learner.lora_batch import routed_roles
from training.learner.packing import join_rows
from training.learner.rows import TrainingRow
from training.learner.token_logprobs import token_logprobs
from training.models.adapters import attach, named_role_parameters
from training.planning.shapes import SHAPES, Shape

GIB = 2**30


def build_on_meta(config: RunConfig, shape: Shape) -> Any:
    """A model of this shape without storage, with an adapter per role where the config has adapters."""
    with torch.device("meta"):
        base = Qwen2ForCausalLM(
            Qwen2Config(
                vocab_size=shape.vocab,
                hidden_size=shape.hidden,
                intermediate_size=shape.inner,
                num_hidden_layers=shape.layers,
                num_attention_heads=shape.heads,
                num_key_value_heads=shape.kv_heads,
                tie_word_embeddings=shape.is_tied,
            )
        ).to(getattr(torch, config.model.dtype))
        if config.model.adapter == "none":
            return base
        names = list(ROLES)
        model = attach(base, config.model, seed=0, name=names[0])
        for name in names[1:]:
            model.add_adapter(name, model.peft_config[names[0]])
    return model.to("meta")


def pass_through(model: Any, config: RunConfig) -> tuple[int, ...]:
    """One micro-batch of two rows with a common prompt; the shape of its log-probabilities."""
    role, own = next(iter(ROLES)), config.marl.max_completion_tokens
    prompt = tuple(range(2, 66))
    rows = [
        TrainingRow(
            role=role,
            token_ids=(*prompt, *[place] * own),
            loss_mask=(*[0] * len(prompt), *[1] * own),
            sampling_logprobs=(0.0,) * (len(prompt) + own),
            advantage=1.0,
        )
        for place in (3, 4)
    ]
    batch = join_rows([rows], "meta")
    with routed_roles(model, batch):
        logprobs, _ = token_logprobs(model, batch, logit_rows=config.marl.memory.logit_rows)
    return tuple(logprobs.shape)


def rank_memory(config: RunConfig, ranks: int) -> dict[str, float]:
    """GiB that one rank holds while it learns, by what for.

    Raises:
        UserError: the config's preset has no known shape.
    """
    shape = _shape_of(config)
    model = build_on_meta(config, shape)
    pass_through(model, config)
    roles = list(ROLES)
    owned = {name: p for role in roles for name, p in named_role_parameters(model, role)}
    trained = sum(p.numel() for p in owned.values())
    frozen = sum(p.numel() * p.element_size() for name, p in model.named_parameters() if name not in owned)
    is_full = config.model.adapter == "none"
    copies = len(roles) if is_full else 1  # with full weights every role has a model
    parts = ranks if config.marl.memory.sharding == "fsdp2" else 1
    width = 2 if config.marl.memory.sharded_bf16 or config.model.dtype == "bfloat16" else 4
    kept = shape.activation_bytes(width, checkpointing=config.model.gradient_checkpointing)
    own = config.marl.memory.logit_rows or config.marl.memory.micro_batch_tokens
    held = {
        "frozen base": 0.0 if is_full else float(frozen),
        "trained weights": 4.0 * trained * copies / parts,
        "gradients": 4.0 * trained * copies / parts,
        "optimizer": 0.0 if config.marl.memory.cpu_offload else 8.0 * trained * copies / parts,
        "copies that play": 4.0 * trained * copies if parts > 1 else 0.0,
        "activations": float(kept * config.marl.memory.micro_batch_tokens),
        "logits": 8.0 * own * shape.vocab,
    }
    return {name: size / GIB for name, size in held.items()}


def _shape_of(config: RunConfig) -> Shape:
    from roles.errors import unknown

    if config.model.preset not in SHAPES:
        raise unknown("model.preset", config.model.preset, sorted(SHAPES))
    return SHAPES[config.model.preset]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", type=Path)
    parser.add_argument("--ranks", type=int, default=1)
    options = parser.parse_args()
    memory = rank_memory(load_config(options.config), options.ranks)
    print(f"{options.config.name}, {options.ranks} ranks, GiB per rank while learning")
    for name, size in memory.items():
        print(f"  {name:<18} {size:8.2f}")
    print(f"  {'all':<18} {sum(memory.values()):8.2f}")


if __name__ == "__main__":
    main()

"""A joint learner and one micro-batch on the meta device: shapes are real, nothing is computed or held.

    python -m training.planning.distributed_dry_run configs/marl/4xa100.yaml --ranks 4

It shows what one rank holds while it learns; `emads plan` adds time, cache and the other stages.
"""

import argparse
from dataclasses import fields
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
from training.planning.memory import Memory, joint_memory
from training.planning.shapes import SHAPES, Shape

GIB = 2**30


def build_on_meta(config: RunConfig, shape: Shape) -> Any:
    """A model of this shape without storage, with an adapter per role where the config has adapters."""
    with torch.device("meta"):
        base = Qwen2ForCausalLM(Qwen2Config(**shape.config_values())).to(getattr(torch, config.model.dtype))
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


def rank_memory(config: RunConfig, ranks: int) -> Memory:
    """Count what one rank holds while it learns, by the formulas of `emads plan`, from the model's sizes.

    Raises:
        UserError: the config's preset has no known shape.
        ValueError: the real modules have other sizes than the formulas say.
    """
    shape = _shape_of(config)
    model = build_on_meta(config, shape)
    pass_through(model, config)
    trained = {name: p.numel() for role in ROLES for name, p in named_role_parameters(model, role)}
    is_full = config.model.adapter == "none"
    expected = shape.num_parameters if is_full else len(ROLES) * shape.lora_parameters(config.model.lora_rank)
    if abs(sum(trained.values()) / expected - 1) > 0.01 and config.model.adapter_sharing == "per_role":
        raise ValueError(f"{sum(trained.values())} trained weights counted, {expected} planned")
    return joint_memory(shape, config, ranks)


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
    for name in (*(field.name for field in fields(memory)), "total"):
        print(f"  {name:<12} {getattr(memory, name) / GIB:8.2f}")


if __name__ == "__main__":
    main()

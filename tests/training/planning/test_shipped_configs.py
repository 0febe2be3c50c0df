"""The shipped configs for one to sixteen devices fit, by the sizes of real modules on the meta device."""

from pathlib import Path
from typing import Any

import pytest
import torch
from fast_loop import slow_except
from transformers import Qwen2Config, Qwen2ForCausalLM

from benchmarks.gpu.sizes import list_config_values
from roles.registry import ROLES
from training.config.loading import load_config
from training.config.run_config import RunConfig
from training.learner.lora_batch import routed_roles
from training.learner.rows import TrainingRow, join_rows
from training.learner.token_logprobs import token_logprobs
from training.models.adapters import attach, named_role_parameters
from training.models.shapes import SHAPES
from training.planning import GIB, joint_memory

CONFIGS = Path(__file__).parent.parent.parent.parent / "configs" / "marl"
RANKS = {"1xa100": 1, "4xa100": 4, "8xa100": 8, "2node": 16}


def build_on_meta(config: RunConfig) -> Any:
    """The config's model without storage, with an adapter per role."""
    shape, names = SHAPES[config.model.preset], list(ROLES)
    with torch.device("meta"):
        base = Qwen2ForCausalLM(Qwen2Config(**list_config_values(shape))).to(
            getattr(torch, config.model.dtype)
        )
        if config.model.adapter == "none":
            return base
        model: Any = attach(base, config.model, seed=0, name=names[0])
        for name in names[1:]:
            model.add_adapter(name, model.peft_config[names[0]])
    return model.to("meta")


def test_every_config_has_its_ranks() -> None:
    assert {path.stem for path in CONFIGS.glob("*.yaml")} == set(RANKS)


@pytest.mark.parametrize("name", slow_except(RANKS, "2node"))
def test_a_rank_has_room_for_a_cache(name: str) -> None:
    """On an A100 of 80 GB, by formulas whose trained weights are those of the real modules."""
    config = load_config(CONFIGS / f"{name}.yaml")
    shape, model = SHAPES[config.model.preset], build_on_meta(config)
    trained = {key: p.numel() for role in ROLES for key, p in named_role_parameters(model, role)}
    is_full = config.model.adapter == "none"
    planned = shape.num_parameters if is_full else len(ROLES) * shape.lora_parameters(config.model.lora_rank)
    assert sum(trained.values()) == pytest.approx(planned, rel=0.01)
    assert 5 < joint_memory(shape, config, RANKS[name]).total / GIB < 60


def test_a_micro_batch_goes_through_on_the_meta_device() -> None:
    """Two rows of one role with a common prompt."""
    config = load_config(CONFIGS / "1xa100.yaml")
    model, own, prompt = build_on_meta(config), config.marl.max_completion_tokens, tuple(range(2, 66))
    rows = [
        TrainingRow(
            role="cto",
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
    assert all(parameter.is_meta for parameter in model.parameters())
    assert tuple(logprobs.shape) == (2 * own,)

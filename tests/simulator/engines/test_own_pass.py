"""A model's own pass over whole texts stands in where the batched steps would sample from another model."""

import asyncio
import copy
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from simulator.engines.base import Completion, CompletionRequest, Sampling
from simulator.engines.embedded import own_pass
from simulator.engines.embedded.engine import TransformersEngine

FAMILIES: dict[str, dict[str, Any]] = {
    "mistral": {"sliding_window": 8},
    "gemma3_text": {"head_dim": 8, "sliding_window": 8, "query_pre_attn_scalar": 8},
    "falcon": {"new_decoder_architecture": True, "num_kv_heads": 2},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "mamba": {},
    "gpt2": {"n_positions": 40},
    "llama": {},
}


def build(kind: str) -> Any:
    torch.manual_seed(0)
    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    if kind != "gpt2":
        size |= {"num_key_value_heads": 2, "max_position_embeddings": 64}
    config = AutoConfig.for_model(kind, **size, vocab_size=97, pad_token_id=0, **FAMILIES[kind])
    model = AutoModelForCausalLM.from_config(config).eval().float()
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.data.normal_(std=0.25)
    return model


def complete(model: Any, texts: list[list[int]], most: int = 12) -> list[Completion]:
    engine = TransformersEngine(end_id=None)
    engine.set_policy("a", model, version="a@0")

    async def ask(number: int, ids: list[int]) -> Completion:
        return await engine.complete(
            CompletionRequest(
                policy="a",
                session=f"s{number}",
                prompt_ids=tuple(ids),
                sampling=Sampling(max_completion_tokens=most),
            )
        )

    async def ask_all() -> list[Completion]:
        return await asyncio.gather(*(ask(number, ids) for number, ids in enumerate(texts)))

    return asyncio.run(ask_all())


TEXTS = [[5 + (7 * row + k) % 80 for k in range(length)] for row, length in enumerate((20, 26, 9))]


@pytest.mark.parametrize("kind", FAMILIES)
def test_sampled_tokens_have_the_probabilities_of_the_models_own_pass(kind: str) -> None:
    model = build(kind)
    own = copy.deepcopy(model)
    for ids, done in zip(TEXTS, complete(model, TEXTS), strict=True):
        with torch.no_grad():
            every = own(input_ids=torch.tensor([[*ids, *done.token_ids]])).logits[0].log_softmax(-1)
        wanted = every[torch.arange(len(ids) - 1, len(ids) + 11), torch.tensor(done.token_ids)]
        torch.testing.assert_close(torch.tensor(done.logprobs), wanted, atol=1e-4, rtol=0)


def test_a_completion_ends_where_the_models_positions_do() -> None:
    (done,) = complete(build("gpt2"), TEXTS[1:2], most=50)
    assert len(done.token_ids) == 40 - 26
    assert done.finish_reason == "length"


def test_a_probe_finds_steps_that_drop_a_window() -> None:
    model = build("mistral")
    engine = TransformersEngine(end_id=None)
    assert not own_pass.equals(model, engine._play_probe)
    model.config.sliding_window = None
    assert own_pass.equals(model, engine._play_probe)


def test_texts_end_where_longrope_would_turn_by_other_angles() -> None:
    rope = {
        "rope_type": "longrope",
        "rope_theta": 1e4,
        "short_factor": [1.0] * 4,
        "long_factor": [1.0, 2.0, 4.0, 8.0],
        "original_max_position_embeddings": 64,
    }
    config = AutoConfig.for_model(
        "phi3", hidden_size=32, num_attention_heads=4, rope_parameters=rope, max_position_embeddings=1024
    )
    assert own_pass.count_positions(config) == 64
    assert own_pass.count_positions(AutoConfig.for_model("llama", max_position_embeddings=99)) == 99
    assert own_pass.count_positions(AutoConfig.for_model("mamba")) == own_pass.NO_END

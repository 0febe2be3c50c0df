"""A base whose row layouts would not say what the model says is refused before any training."""

import tempfile
from typing import Any

import pytest
import torch
from model_zoo import FAMILIES, make_model, make_tokenizer
from tiny_models import same_weights, weights_of
from transformers import AutoConfig, AutoModelForCausalLM

from roles.errors import UserError
from training.config.model_config import ModelConfig
from training.learner import row_attention
from training.models.base_model import load_without_dropout
from training.models.self_check import check_base, check_layouts


def build(kind: str, **settings: Any) -> Any:
    torch.manual_seed(0)
    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = AutoConfig.for_model(kind, **size, num_key_value_heads=2, vocab_size=97, **settings)
    return AutoModelForCausalLM.from_config(config).float()


@pytest.mark.parametrize(("kind", "settings"), [("llama", {}), ("granite", {"logits_scaling": 8.0})])
def test_every_layout_says_what_the_model_says(kind: str, settings: dict[str, Any]) -> None:
    model = build(kind, **settings)
    attention = model.config._attn_implementation
    assert check_layouts(model, ("padded", "shared_prompt")) < 1e-5
    assert model.config._attn_implementation == attention
    assert model.training


@pytest.mark.parametrize(("kind", "settings"), [("mistral", {"sliding_window": 8}), ("falcon", {})])
def test_a_layout_that_does_not_fit_is_refused(kind: str, settings: dict[str, Any]) -> None:
    assert check_layouts(build(kind, **settings), ("padded",)) < 1e-5
    with pytest.raises(UserError, match="use row_layout padded"):
        check_layouts(build(kind, **settings), ("padded", "shared_prompt"))


@pytest.mark.parametrize("name", ["Qwen 3", "OPT", "GPT-2"])
def test_a_base_is_bare_again_after_a_check_with_adapters(name: str) -> None:
    model = make_model(FAMILIES[name], make_tokenizer(FAMILIES[name])).train()
    model.requires_grad_(True)
    attention, before = model.config._attn_implementation, weights_of(model)
    config = ModelConfig(adapter="lora", lora_rank=2, lora_alpha=4)
    if name != "Qwen 3":  # with dropout it would learn something else than was sampled
        with pytest.raises(UserError, match="row_layout padded are off by"):
            check_base(model, config, ("padded",))
        model = turn_dropout_off(model)
    assert check_base(model, config, ("padded", "shared_prompt")) < 1e-5
    assert same_weights(weights_of(model), before)
    assert all(one.requires_grad for one in model.parameters())
    assert model.training
    assert model.config._attn_implementation == attention


def turn_dropout_off(model: Any) -> Any:
    """The same model as `load_pretrained` would load it."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        found = load_without_dropout(folder).train()
    assert not [value for name, value in found.config.to_dict().items() if "drop" in name and value]
    return found


def test_adapters_that_do_not_fit_are_refused_at_the_base() -> None:
    family = FAMILIES["Qwen 3 MoE"]
    model = make_model(family, make_tokenizer(family))
    with pytest.raises(UserError, match=r"model\.lora_targets"):
        check_base(model, ModelConfig(adapter="lora"), ("padded",))


def test_a_model_that_cannot_compute_is_told_in_words() -> None:
    model = build("gpt_oss", sliding_window=None, num_local_experts=2, num_experts_per_tok=1)
    with pytest.raises(UserError, match=r"gpt_oss cannot compute its own forward pass .*sliding_window"):
        check_layouts(model, ("padded",))


def test_adapters_of_the_output_head_are_refused_at_the_base() -> None:
    family = FAMILIES["Qwen 3"]
    model = make_model(family, make_tokenizer(family))
    config = ModelConfig(adapter="lora", lora_rank=2, lora_alpha=4, lora_targets=("q_proj", "lm_head"))
    with pytest.raises(UserError, match=r"set model\.lora_targets"):
        check_base(model, config, ("padded",))


def test_a_window_that_is_dropped_by_hand_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = (*row_attention._PLAIN_OPTIONS, "sliding_window")
    monkeypatch.setattr(row_attention, "_PLAIN_OPTIONS", allowed)
    with pytest.raises(UserError, match="row_layout shared_prompt are off by"):
        check_layouts(build("mistral", sliding_window=8, initializer_range=0.25), ("shared_prompt",))

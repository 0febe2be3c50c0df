"""A base whose row layouts would not say what the model says is refused before any training."""

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from roles.errors import UserError
from training.learner import row_attention
from training.models.self_check import check_layouts


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


def test_a_window_that_is_dropped_by_hand_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = (*row_attention._PLAIN_OPTIONS, "sliding_window")
    monkeypatch.setattr(row_attention, "_PLAIN_OPTIONS", allowed)
    with pytest.raises(UserError, match="row_layout shared_prompt are off by"):
        check_layouts(build("mistral", sliding_window=8, initializer_range=0.25), ("shared_prompt",))

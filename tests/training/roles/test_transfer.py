"""The benchmark of transfer runs end to end; its figures are published, not tested."""

from typing import Any

import pytest
import torch

from benchmarks.roles.transfer import DIFFICULTIES, _train, copy_model, measure_transfer, write_table
from simulator.engines.embedded.hf_chat import HFChat
from training.config.model_config import ModelConfig
from training.data.demonstrations import corpus
from training.models.base_model import build_tiny_model, train_tokenizer


@pytest.mark.slow
def test_both_models_are_measured_on_the_same_cases_after_the_same_steps() -> None:
    found = measure_transfer("cto", role_steps=2, seat_steps=[0, 2], num_cases=3)
    assert [one.seat_steps for one in found] == [0, 2]
    for one in found:
        assert len(one.untrained) == len(one.role_trained) == 3
        assert all(0 <= reward <= 1 for reward in (*one.untrained, *one.role_trained))
    assert len(write_table(found)) == 4


@pytest.mark.slow
def test_a_copy_of_a_trained_model_learns_and_the_trained_one_stays() -> None:
    tokenizer = train_tokenizer(corpus(num_role=20, num_team=20, seed=0, difficulties=DIFFICULTIES), 512)
    chat, first = HFChat(tokenizer, short_prompts=True), build_tiny_model(ModelConfig(), tokenizer, 0)

    def train(model: Any) -> None:
        _train(model, tokenizer, chat, "cto", seat_share=1.0, steps=2, first_row=0, seed=0)

    def read_weights(model: Any) -> list[Any]:
        return [weight.detach().clone() for weight in model.parameters()]

    train(first)
    before = read_weights(first)
    second = copy_model(first, tokenizer)
    train(second)
    assert all(torch.equal(a, b) for a, b in zip(before, read_weights(first), strict=True))
    assert not any(
        torch.equal(a, b) for a, b in zip(before, read_weights(second), strict=True) if a.dim() > 1
    )

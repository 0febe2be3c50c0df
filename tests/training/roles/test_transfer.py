"""The benchmark of transfer runs end to end; its figures are published, not tested."""

from typing import Any

import pytest
import torch

from benchmarks.roles.transfer import (
    DIFFICULTIES,
    Transfer,
    _train,
    copy_model,
    measure_transfer,
    write_table,
)
from simulator.engines.embedded.hf_chat import HFChat
from training.config.model_config import ModelConfig
from training.config.run_config import DataConfig, RunConfig
from training.data.demonstrations import corpus
from training.models.base_model import build_tiny_model, train_tokenizer


@pytest.mark.slow
def test_both_models_are_measured_on_the_same_cases_after_the_same_steps() -> None:
    found = measure_transfer("cto", control="coo", role_steps=2, seat_steps=[0, 2], num_cases=3)
    assert [one.name for one in found] == ["0 steps at the seat", "2 steps at the seat"]
    for one in found:
        assert len(one.without) == len(one.trained) == 3
        assert all(0 <= reward <= 1 for reward in (*one.without, *one.trained))


def test_the_table_pairs_rewards_by_case() -> None:
    found = [Transfer(name="cto", without=(0.0, 0.5, 1.0), trained=(0.25, 0.75, 1.25))]
    assert write_table(found, ["seat", "a", "b"])[2] == "| cto | 0.500 | 0.750 | +0.250 [+0.250, +0.250] |"


@pytest.mark.slow
def test_a_copy_of_a_trained_model_learns_and_the_trained_one_stays() -> None:
    tokenizer = train_tokenizer(corpus(RunConfig(data=DataConfig(difficulties=DIFFICULTIES)), 20), 512)
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

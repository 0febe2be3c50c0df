"""Memory of the embedded engine's windows: unused columns, and what a learner on the same GPU needs."""

import asyncio
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from simulator.engines.base import Completion, CompletionRequest, Sampling
from simulator.engines.embedded import lanes
from simulator.engines.embedded.engine import TransformersEngine
from simulator.engines.embedded.kv_window import KVWindow
from training.models.engine_factory import release_engine_memory


@pytest.mark.parametrize(("is_fixed", "most"), [(False, 232), (True, 157)])
def test_columns_are_moved_together_where_the_unused_ones_are_too_many(
    is_fixed: bool, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The longest row holds 100 tokens: as many unused columns and 32 may be kept, on a GPU a quarter."""
    window, squeezed = KVWindow(is_fixed=is_fixed), list[list[int]]()
    monkeypatch.setattr(window, "longest_row", lambda: 100)
    window.num_rows = 3
    monkeypatch.setattr(window, "keep_rows", squeezed.append)
    window.column = most
    window.squeeze()
    assert squeezed == []
    window.column = most + 1
    window.squeeze()
    assert squeezed == [[0, 1, 2]]


@pytest.mark.parametrize("is_fixed", [False, True])
def test_a_resting_engine_gives_a_window_of_more_than_half_the_gpu_back(
    is_fixed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=61,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    model = LlamaForCausalLM(config).eval()

    def ask(engine: TransformersEngine, *prompt: int) -> Completion:
        request = CompletionRequest(
            policy="cto",
            session="one",
            prompt_ids=prompt,
            sampling=Sampling(temperature=1.0, max_completion_tokens=5),
        )
        return asyncio.run(engine.complete(request))

    def start() -> TransformersEngine:
        engine = TransformersEngine(end_id=None, fixed_shapes=is_fixed)
        engine.set_policy("cto", model, version="cto@0")
        return engine

    engine = start()
    said = ask(engine, 5, 6, 7)
    (lane,) = engine._lanes
    held = lane.window.num_bytes
    assert held >= 2 * 2 * 7 * 16 * 4  # layers, keys and values, tokens, width, float32

    for memory, left in ((None, held), (2 * held, held), (2 * held - 1, 0)):
        monkeypatch.setattr(lanes, "device_memory", lambda device, most=memory: most)
        release_engine_memory(engine)
        assert lane.window.num_bytes == left

    more = (5, 6, 7, *said.token_ids, 9)
    again, alone = ask(engine, *more), ask(start(), *more)
    assert again.token_ids == alone.token_ids
    assert again.logprobs == pytest.approx(alone.logprobs, abs=1e-5)


@pytest.mark.parametrize("is_fixed", [False, True])
def test_numbers_of_a_row_that_was_dropped_reach_no_other_row(is_fixed: bool) -> None:
    """A mask gives unused columns the weight 0, and 0 times a number that is not finite is none."""

    class Prompts:
        def __init__(self, *filled: float) -> None:
            keys = torch.tensor(filled).view(-1, 1, 1, 1).expand(-1, 1, 5, 2).clone()
            self.layers = [type("Layer", (), {"keys": keys, "values": keys})]

    window = KVWindow(is_fixed=is_fixed)
    window.append_rows(Prompts(1.0, float("nan"), 3.0), torch.ones(3, 5, dtype=torch.bool))
    window.column += 1  # nobody's: it goes when rows move
    window.keep_rows([0, 2])
    window.append_rows(Prompts(4.0), torch.tensor([[False, False, True, True, True]]))
    assert window.valid[:3, : window.column].sum(1).tolist() == [5, 5, 3]
    cache: Any = window.view(3, 5, torch.tensor([0]))
    assert cache.layers[0].keys[:, 0, :, 0].tolist() == [[1.0] * 5, [3.0] * 5, [4.0] * 5]
    columns = window.valid.shape[1]
    whole: Any = window.view(3, columns, torch.tensor([0]))
    assert torch.isfinite(whole.layers[0].keys).all()


def test_a_window_of_float32_takes_keys_of_a_step_under_autocast() -> None:
    """A trainer that samples under bfloat16 autocast writes bfloat16 keys into the window."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=61,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    engine = TransformersEngine(end_id=None, fixed_shapes=True)
    engine.set_policy("cto", LlamaForCausalLM(config).eval(), version="cto@0")

    def ask(*prompt: int) -> Completion:
        request = CompletionRequest(
            policy="cto",
            session="talk",
            prompt_ids=prompt,
            sampling=Sampling(temperature=0.0, max_completion_tokens=5),
        )
        return asyncio.run(engine.complete(request))

    first = ask(5, 6, 7)
    with torch.autocast("cpu", torch.bfloat16):
        second = ask(5, 6, 7, *first.token_ids, 9)
    assert len(second.token_ids) == 5
    assert engine._lanes[0].window.num_rows == 1

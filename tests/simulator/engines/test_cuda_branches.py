"""What the embedded engine does on a GPU, taken on a CPU: recorded steps, and the device of a thread."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from simulator.engines.base import Completion, CompletionRequest, Sampling
from simulator.engines.embedded import engine as embedded
from simulator.engines.embedded.engine import TransformersEngine
from simulator.engines.embedded.kv_window import GraphStep
from simulator.engines.embedded.lanes import on_device


def make_model() -> Any:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=50, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    model.eval()
    return model


def talk(*, fixed_shapes: bool) -> list[list[Completion]]:
    """Three transcripts of two turns each, side by side."""
    engine = TransformersEngine(end_id=None, fixed_shapes=fixed_shapes)
    engine.set_policy("cto", make_model(), version="cto@0")

    async def play(number: int) -> list[Completion]:
        ids, said = tuple(range(3, 9 + 40 * number)), list[Completion]()
        ids = tuple(one % 50 for one in ids)
        for _ in range(2):
            sampling = Sampling(max_completion_tokens=60)
            request = CompletionRequest(policy="cto", session=str(number), prompt_ids=ids, sampling=sampling)
            said.append(await engine.complete(request))
            ids += (*said[-1].token_ids, 7, 8)
        return said

    async def play_all() -> list[list[Completion]]:
        return list(await asyncio.gather(*(play(number) for number in range(3))))

    return asyncio.run(play_all())


class Recorder:
    """Graphs as CUDA's are: a recording computes nothing, a replay computes what was recorded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.active: Graph | None = None
        self.num_recorded = self.num_replayed = 0
        step = GraphStep._step

        def record_or_step(graph_step: GraphStep, rows: int, columns: int) -> None:
            if self.active is None:
                step(graph_step, rows, columns)
            else:
                self.active.work = partial(step, graph_step, rows, columns)

        @contextmanager
        def recording(graph: "Graph", **options: Any) -> Iterator[None]:
            assert options["capture_error_mode"] == "thread_local"
            self.active, self.num_recorded = graph, self.num_recorded + 1
            yield
            self.active = None

        monkeypatch.setattr(GraphStep, "_step", record_or_step)
        monkeypatch.setattr(
            GraphStep, "_records", property(lambda _: True, lambda _, value: None), raising=False
        )
        monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: Graph(self))
        monkeypatch.setattr(torch.cuda, "graph", recording)
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: object())
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)


class Graph:
    """One recorded step."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.work: Callable[[], None] | None = None

    def replay(self) -> None:
        """Compute what was recorded, on what the buffers hold now."""
        assert self.work is not None
        self.recorder.num_replayed += 1
        self.work()


def test_recorded_steps_sample_what_plain_ones_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after the window's buffers moved and where rows came and went."""
    plain = talk(fixed_shapes=False)
    recorder = Recorder(monkeypatch)
    replayed = talk(fixed_shapes=True)
    assert 1 < recorder.num_recorded < recorder.num_replayed
    for mine, theirs in zip(replayed, plain, strict=True):
        assert [one.token_ids for one in mine] == [one.token_ids for one in theirs]
        for one, other in zip(mine, theirs, strict=True):
            assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


def test_a_step_is_computed_on_the_models_own_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA's current device is a thread's own, and begins as the first GPU in each."""
    local, found = threading.local(), list[int]()

    @contextmanager
    def enter(device: torch.device) -> Iterator[None]:
        local.device = device.index
        yield
        local.device = 0

    monkeypatch.setattr(torch.cuda, "device", enter)
    monkeypatch.setattr(embedded, "on_device", lambda device: on_device(torch.device("cuda", 3)))
    forward = LlamaForCausalLM.forward

    def look(model: LlamaForCausalLM, *given: Any, **named: Any) -> Any:
        found.append(getattr(local, "device", 0))
        return forward(model, *given, **named)

    engine = TransformersEngine(end_id=None)
    engine.set_policy("cto", make_model(), version="cto@0")
    monkeypatch.setattr(LlamaForCausalLM, "forward", look)
    request = CompletionRequest(
        policy="cto", session="s", prompt_ids=(3, 4), sampling=Sampling(max_completion_tokens=2)
    )
    threading.Thread(target=lambda: asyncio.run(engine.complete(request))).start()
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join(60)
    assert set(found) == {3}
    assert isinstance(on_device(torch.device("cpu")).__enter__(), type(None))

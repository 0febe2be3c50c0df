"""The embedded engine's tokens per second with five adapters in every batch, against the bandwidth roof.

A decode step reads every weight and the keys and values of every call once, so that

    tokens/s <= in_flight * bandwidth / (weight bytes + in_flight * mean context * key-value bytes per token)
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from benchmarks.gpu.ceilings import measure_bandwidth
from benchmarks.gpu.learner import record_kernels
from benchmarks.gpu.records import Record
from benchmarks.gpu.sizes import Scale, build_team
from roles.registry import ROLES
from simulator.engines.base import CompletionRequest, Sampling
from simulator.engines.embedded.engine import TransformersEngine
from simulator.engines.embedded.grouped_attention import NAME, grouped_attention
from training.models.shapes import Shape

Prompts = list[tuple[int, ...]]


def roof(shape: Shape, in_flight: int, context: float, bandwidth: float, bytes_per_number: int) -> float:
    """Tokens per second at which reading weights and keys alone takes all the bandwidth."""
    read = shape.num_working * bytes_per_number + in_flight * context * shape.cache_bytes(bytes_per_number)
    return in_flight * bandwidth / read


def measure_engine(scale: Scale, preset: str, record: Record) -> None:
    """A record for every number of calls in flight: prompts are read first, then tokens come one by one."""
    shape, bandwidth = scale.shape(preset), measure_bandwidth(scale)
    record("bandwidth", bytes_per_s=bandwidth)
    model = build_team(shape, scale, spread=1e-3)
    width, tokens = scale.choose(512, 16), scale.choose(64, 4)
    for in_flight in scale.choose((1, 16, 64, 256), (1, 4)):
        engine = TransformersEngine(end_id=None, seed=0)
        for role in ROLES:
            engine.set_policy(role, model, version=f"{role}@0")
        prompts = [
            tuple(4 + (37 * number + 11 * place) % (shape.vocab - 8) for place in range(width))
            for number in range(in_flight)
        ]
        read_s, opened = _complete(engine, prompts, 1, scale)
        decode_s, said = _complete(engine, [(*one, 5) for one in opened], tokens, scale)
        rate = in_flight * tokens / decode_s
        most = roof(shape, in_flight, width + tokens / 2, bandwidth, scale.dtype.itemsize)
        record(
            "engine",
            preset=preset,
            in_flight=in_flight,
            prompt_tokens_per_s=in_flight * width / read_s,
            tokens_per_s=rate,
            roof=most,
            share_of_roof=rate / most,
            step_ms=1000 * decode_s / tokens,
        )
        if in_flight == scale.choose(64, 4):
            step = partial(_complete, engine, [(*one, 6) for one in said], 4, scale)
            record_kernels(step, scale, record, preset=preset, in_flight=in_flight, steps=4)


def measure_attention(scale: Scale, preset: str, record: Record) -> None:
    """A record for each way in which many long transcripts attend while they are decoded.

    `products` is the engine's; `copies` is that of Transformers, which repeats keys for every query head.
    Call it in a process of its own: it leaves the second way registered.
    """
    shape = scale.shape(preset)
    model = build_team(shape, scale, spread=1e-3)
    in_flight, width, tokens = scale.choose((512, 1150, 60), (4, 16, 4))
    prompts = [
        tuple(4 + (7 * number + 13 * place) % (shape.vocab - 8) for place in range(width))
        for number in range(in_flight)
    ]
    ways: dict[str, Callable[..., Any]] = {"products": grouped_attention, "copies": sdpa_attention_forward}
    for way, attend in ways.items():
        AttentionInterface.register(NAME, attend)
        engine = TransformersEngine(end_id=None, seed=0, fixed_shapes=True)
        for role in ROLES:
            engine.set_policy(role, model, version=f"{role}@0")
        _, opened = _complete(engine, prompts, 2, scale)
        _, warm = _complete(engine, [(*one, 5) for one in opened], 8, scale)
        seconds, _ = _complete(engine, [(*one, 6) for one in warm], tokens, scale)
        record("attention", preset=preset, way=way, in_flight=in_flight, step_ms=1000 * seconds / tokens)


def _complete(
    engine: TransformersEngine, prompts: Prompts, num_tokens: int, scale: Scale
) -> tuple[float, Prompts]:
    """Seconds until all calls are answered, and the transcripts that they end with."""

    async def ask(number: int, prompt: tuple[int, ...]) -> tuple[int, ...]:
        request = CompletionRequest(
            policy=list(ROLES)[number % len(ROLES)],
            session=str(number),
            prompt_ids=prompt,
            sampling=Sampling(temperature=1.0, max_completion_tokens=num_tokens),
        )
        completion = await engine.complete(request)
        assert len(completion.token_ids) == num_tokens
        return prompt + completion.token_ids

    async def ask_all() -> Prompts:
        return await asyncio.gather(*(ask(number, prompt) for number, prompt in enumerate(prompts)))

    scale.wait()
    start = time.perf_counter()
    said = asyncio.run(ask_all())
    scale.wait()
    return time.perf_counter() - start, said

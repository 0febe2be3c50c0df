"""Engines, ways to play and medians over alternating repeats for the engine benchmarks."""

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from benchmarks.engines.models import RANK
from benchmarks.engines.workloads import ROLES, Call, Episode
from simulator.engines.base import PolicyEngine
from simulator.engines.embedded.engine import TransformersEngine
from simulator.engines.vllm.engine import VLLMEngine

Way = Callable[[], int]  # plays the work, returns the tokens made


def open_engine(
    base: Path, team: Any | None, *, seats: int, roles: Sequence[str] = ROLES, **options: Any
) -> VLLMEngine:
    """A vLLM engine that serves every role by its adapter (None: all by the base), started."""
    chosen = {"max_num_seqs": seats, "max_loras": max(8, len(roles)), "max_lora_rank": RANK, **options}
    if team is None:
        chosen["enable_lora"] = False
    engine = VLLMEngine(base, end_id=None, options=chosen)
    for role in roles:
        engine.set_policy(role, team, version=f"{role}@0", adapter=None if team is None else role)
    engine.start()
    return engine


@contextmanager
def measured_engine(
    args: argparse.Namespace, base: Path, team: Any | None, *, seats: int, roles: Sequence[str] = ROLES
) -> Iterator[tuple[PolicyEngine, Callable[[], None]]]:
    """The engine that --engine names, and what makes it forget all prompts; `team` None: all on the base."""
    if args.engine == "vllm":
        engine = open_engine(base, team, seats=seats, roles=roles)
        try:
            yield engine, engine.reset_prefix_cache
        finally:
            engine.close()
    else:
        embedded = TransformersEngine(end_id=None)
        model = team or AutoModelForCausalLM.from_pretrained(base, dtype="auto").eval()
        for role in roles:
            embedded.set_policy(role, model, version=f"{role}@0", adapter=None if team is None else role)
        yield embedded, lambda: None


def compare(ways: Mapping[str, Way], tokens: int, repeats: int) -> dict[str, float]:
    """Median seconds of each way; each is played once before it is timed."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for repeat in range(repeats + 1):
        for name, way in ways.items():
            start = time.perf_counter()
            made = way()
            elapsed = time.perf_counter() - start
            assert made == tokens, f"{name} made {made} tokens, not {tokens}"
            if repeat:
                seconds[name].append(elapsed)
    return {name: statistics.median(values) for name, values in seconds.items()}


def show(title: str, medians: Mapping[str, float], tokens: int | None) -> dict[str, Any]:
    """Print one line per way; the first is ours. `tokens`: made by every way (None: nothing is made)."""
    print(f"\n{title}" + (f", {tokens} tokens made by every way" if tokens else ""))
    ours = next(iter(medians.values()))
    for name, value in medians.items():
        rate = f"{tokens / value:9.0f} tokens/s " if tokens else ""
        print(f"  {name:32s} {value:8.2f} s {rate}{value / ours:7.2f} x")
    return {"title": title, "tokens": tokens, "seconds": dict(medians)}


class Generate:
    """`transformers.generate`, one call at a time, each with its role's adapter or on the base alone."""

    def __init__(self, model: Any, *, with_adapters: bool) -> None:
        self.model, self.with_adapters = model, with_adapters
        self._said: dict[str, Tensor] = {}

    async def __call__(self, call: Call) -> int:
        if self.with_adapters:
            self.model.set_adapter(call.role)
        before = self._said.get(call.session, torch.zeros(1, 0, dtype=torch.long))
        ids = torch.cat([before, torch.tensor([call.prompt_ids])], 1)
        with torch.no_grad():
            output = self.model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                do_sample=True,
                top_k=0,
                min_new_tokens=call.num_tokens,
                max_new_tokens=call.num_tokens,
            )
        self._said[call.session] = output
        return int(output.shape[1] - ids.shape[1])

    def end(self, episode: Episode) -> None:
        self._said.clear()


def fresh(forget: Callable[[], None], play: Callable[[], Coroutine[Any, Any, int]]) -> Way:
    """A way that computes its own prompts."""

    def way() -> int:
        forget()
        return asyncio.run(play())

    return way


def describe(args: argparse.Namespace) -> str:
    """Engine, shape, weights and lengths in words."""
    weights = f"{args.shape}, {args.engine}, {'no' if args.base else 'five'} adapters"
    return f"{weights}, prompts {args.prompt}, completions {args.tokens} ({args.lengths})"

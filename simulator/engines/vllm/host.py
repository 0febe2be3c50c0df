"""One vLLM engine on one set of weights: it starts when first needed, and again when it died.

AsyncLLM's scheduler and workers are processes of their own; its client belongs to one event loop, which is
why everything in here runs in a LoopThread.
"""

import asyncio
import itertools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from roles.errors import InfrastructureError
from simulator.engines.base import Completion, CompletionRequest
from simulator.engines.vllm.library import (
    free_cached_memory,
    generate,
    last_line,
    start_engine,
    stop_engine,
)
from simulator.engines.vllm.options import engine_arguments, start_environment
from simulator.records import FinishReason


class VLLMHost:
    """Owns one AsyncLLM. All coroutines run in the same loop."""

    def __init__(self, weights: Path, options: Mapping[str, Any], *, seed: int, max_restarts: int) -> None:
        self.weights = weights
        self._options = options
        self._seeds = itertools.count(seed)  # of each start another: it would draw the same noise again
        self._starts_left = 1 + max_restarts
        self._engine: Any = None
        self._is_asleep = False
        self._starting = asyncio.Lock()
        self._ids = itertools.count()

    async def ready(self) -> Any:
        """Return the running AsyncLLM; start one if there is none, or if the last one died.

        Raises:
            InfrastructureError: it does not start, or died once too often.
            UserError: vLLM refuses an option.
        """
        async with self._starting:
            if self._engine is not None and self._engine.errored:
                self.close()
            if self._engine is None:
                if self._starts_left == 0:
                    raise InfrastructureError("the vLLM engine died too often; it is not started again")
                self._starts_left -= 1
                self._engine, self._is_asleep = self._start(), False
            if self._is_asleep:
                free_cached_memory()
                await self._engine.wake_up()
                self._is_asleep = False
            return self._engine

    async def sleep(self) -> None:
        """Give the GPU's memory to the learner until the next call, where enable_sleep_mode is set."""
        async with self._starting:
            can_sleep = self._options.get("enable_sleep_mode") and not self._is_asleep
            if can_sleep and self._engine is not None and not self._engine.errored:
                await self._engine.sleep(level=1)  # weights wait in the host's memory, the cache is dropped
                self._is_asleep = True

    def _start(self) -> Any:
        arguments = engine_arguments(self.weights, self._options, seed=next(self._seeds))
        return start_engine(arguments, start_environment(arguments))

    async def generate(
        self, request: CompletionRequest, *, end_id: int | None, lora: Any, version: str
    ) -> tuple[Completion, int]:
        """Generate one completion; return also how many tokens of the prompt were in the prefix cache.

        A cancelled call is taken out of the batch. `end_id` None: always max_completion_tokens long. `lora`:
        vLLM's LoRARequest, None for the base.

        Raises:
            InfrastructureError: a bad prompt, the engine died, or a log-probability is not finite.
        """
        engine = await self.ready()
        _check_prompt(request.prompt_ids, engine.model_config)
        last = await generate(engine, f"call-{next(self._ids)}", request, end_id=end_id, lora=lora)
        completion = _read(last, request, end_id, version, engine.model_config.max_model_len)
        if not all(map(math.isfinite, completion.logprobs)):
            if engine is self._engine:
                self.close()  # what is not finite stays in the cache's memory and spreads to other calls
            raise InfrastructureError(
                "the engine returned a log-probability that is not finite; it is started again"
            )
        return completion, last.num_cached_tokens or 0

    async def add_lora(self, lora: Any) -> None:
        """Load an adapter before its first call, so that a bad one fails here.

        Raises:
            InfrastructureError: it does not load, or the engine died.
        """
        engine = await self.ready()
        try:
            is_new = await engine.add_lora(lora)
        except Exception as error:  # the worker's own exception comes through as it is
            raise InfrastructureError(f"vLLM cannot load adapter {lora.name}: {last_line(error)}") from error
        if not is_new:
            raise InfrastructureError(f"vLLM did not load adapter {lora.name}")

    async def remove_lora(self, lora_id: int) -> None:
        """Forget an adapter; one that the engine has already dropped is no fault."""
        if self._engine is not None and not self._engine.errored:
            await (await self.ready()).remove_lora(lora_id)

    async def reload(self, weights: Path) -> None:
        """Replace all weights of the idle engine; nothing computed with the old ones is used again.

        Raises:
            InfrastructureError: they do not load.
        """
        engine = await self.ready()
        self.weights = weights
        try:
            await engine.collective_rpc("reload_weights", kwargs={"weights_path": str(weights)})
            await self.reset_prefix_cache()
        except Exception as error:  # the worker's own exception comes through as it is
            raise InfrastructureError(f"vLLM cannot load weights {weights}: {last_line(error)}") from error

    async def reset_prefix_cache(self) -> None:
        """Forget all computed prompts."""
        await (await self.ready()).reset_prefix_cache()

    def close(self) -> None:
        """End the engine's processes; calls in flight fail."""
        engine, self._engine = self._engine, None
        if engine is not None:
            stop_engine(engine)


def _check_prompt(prompt_ids: tuple[int, ...], model: Any) -> None:
    """Refuse a prompt that the engine would refuse, or die of.

    Raises:
        InfrastructureError: too long, empty, or an id out of range.
    """
    longest, vocab_size = model.max_model_len - 1, model.get_vocab_size()
    if len(prompt_ids) > longest:
        raise InfrastructureError(f"prompt of {len(prompt_ids)} tokens: the engine takes {longest} at most")
    if not prompt_ids or not 0 <= min(prompt_ids) <= max(prompt_ids) < vocab_size:
        raise InfrastructureError(
            f"prompt of {len(prompt_ids)} tokens: ids must lie in 0..{vocab_size - 1}, one or more of them"
        )


def _read(
    output: Any, request: CompletionRequest, end_id: int | None, version: str, limit: int
) -> Completion:
    """Read the completion in vLLM's output.

    Raises:
        InfrastructureError: the context was full.
    """
    done = output.outputs[0]
    token_ids = tuple(done.token_ids)
    steps = done.logprobs or []
    logprobs = tuple(step[token].logprob for token, step in zip(token_ids, steps, strict=True))
    if end_id is not None and token_ids[-1:] == (end_id,):
        reason: FinishReason = "stop"
    elif len(token_ids) == request.sampling.max_completion_tokens:
        reason = "length"
    else:
        raise InfrastructureError(
            f"context full: {len(request.prompt_ids)} + {len(token_ids)} of {limit} tokens"
            f" (finish: {done.finish_reason})"
        )
    return Completion(token_ids=token_ids, logprobs=logprobs, finish_reason=reason, policy_version=version)

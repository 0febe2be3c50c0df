"""vLLM in this process: every role's calls from all episodes in one continuous batch, one LoRA per role.

Token ids go in; sampled ids and the log-probabilities they were sampled with come out. A new version of a
policy's adapter is a new adapter to vLLM (its own name and id), so that no key computed with an old one is
ever used; the old one goes when its last call has ended. Nothing is merged.

Determinism. Greedy calls repeat up to ties in floating point, whatever shares the batch. Sampled calls do not
repeat: vLLM draws from one stream for the whole batch (its CPU build takes no seed per request), so what a
call gets depends on its batch mates. Use the transformers engine where samples must repeat.
"""

import asyncio
import itertools
import math
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roles.errors import InfrastructureError, UserError
from simulator.engines.adapter_names import adapter_of
from simulator.engines.base import Completion, CompletionRequest
from simulator.engines.loop_thread import LoopThread
from simulator.engines.vllm.adapters import CONFIG, AdapterStore
from simulator.engines.vllm.library import (
    free_cached_memory,
    generate,
    last_line,
    lora_request,
    start_engine,
    stop_engine,
)
from simulator.engines.vllm.options import DEFAULTS, check_options, engine_arguments, start_environment


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
    reason = request.find_finish(token_ids, end_id)
    if reason is None:
        raise InfrastructureError(
            f"context full: {len(request.prompt_ids)} + {len(token_ids)} of {limit} tokens"
            f" (finish: {done.finish_reason})"
        )
    return Completion(token_ids=token_ids, logprobs=logprobs, finish_reason=reason, policy_version=version)


@dataclass(slots=True)
class _Served:
    """One version of one policy."""

    version: str
    host: VLLMHost
    lora: Any = None  # vLLM's LoRARequest; None: the host's own weights
    folder: Path | None = None  # in the store
    num_in_flight: int = 0
    is_current: bool = True


class VLLMEngine:
    """Engine over AsyncLLM, usable from any event loop (and from several, one after the other).

    Adapters share one engine on `base`. A policy with full weights of its own gets an engine of its own:
    right, but without a common batch.
    """

    def __init__(
        self,
        base: Path | None,
        *,
        end_id: int | None,
        seed: int = 0,
        options: Mapping[str, Any] | None = None,
        request_timeout_s: float = 600.0,
        max_restarts: int = 2,
    ) -> None:
        """`base`: a model folder, loaded at the first call; None where every policy brings full weights.

        `end_id` None makes every completion exactly max_completion_tokens long. `options` are vLLM's engine
        arguments.

        Raises:
            UserError: vLLM is not installed, or an option that it does not know.
        """
        check_options(options or {})
        self._options = dict(options or {})
        self._max_rank = int(self._options.get("max_lora_rank", DEFAULTS["max_lora_rank"]))
        self._end_id, self._seed = end_id, seed
        self._request_timeout_s, self._max_restarts = request_timeout_s, max_restarts
        self.num_cached_tokens = 0  # of all prompts: taken from the prefix cache, not computed
        self._served: dict[str, _Served] = {}
        self._own_hosts: dict[str, VLLMHost] = {}  # of policies with full weights
        self._num_loras = 0
        self.store = AdapterStore()
        self._thread = LoopThread("vllm-engine")
        self._base = self._make_host(base) if base is not None else None
        weakref.finalize(self, self.store.close)

    def set_policy(self, policy: str, model: Any = None, *, version: str, adapter: str | None = None) -> None:
        """Serve `policy` from now on by `version`; calls in flight end on the version they began with.

        `model`: a PEFT model (its `adapter`, or its active one) or PEFT folder; a model or model folder of
        full weights; None for the base as it is.

        Raises:
            InfrastructureError: damaged or refused weights; the earlier version goes on.
            UserError: an adapter without a base, or of too high a rank.
            RuntimeError: full weights are to be replaced while calls on them are in flight.
        """
        if model is None:
            self._thread.call(self._install(policy, _Served(version=version, host=self._shared(policy))))
        elif hasattr(model, "peft_config") or (isinstance(model, Path) and (model / CONFIG).exists()):
            self._set_adapter(policy, model, version, adapter)
        else:
            self._set_weights(policy, model, version)

    def _set_adapter(self, policy: str, source: Any, version: str, adapter: str | None) -> None:
        host = self._shared(policy)
        if adapter is None and not isinstance(source, Path):
            adapter = adapter_of(source, policy)
        folder = self.store.put(source, adapter=adapter or "default", max_rank=self._max_rank)
        self._num_loras += 1
        lora = lora_request(f"{version}#{self._num_loras}", self._num_loras, str(folder))
        try:
            self._thread.call(host.add_lora(lora))
        except BaseException:
            self.store.drop(folder)
            raise
        served = _Served(version=version, host=host, lora=lora, folder=folder)
        self._thread.call(self._install(policy, served))

    def _set_weights(self, policy: str, model: Any, version: str) -> None:
        if isinstance(model, Path) and not (model / "config.json").exists():
            raise InfrastructureError(f"{model} is neither an adapter nor a model folder")
        folder = model if isinstance(model, Path) else self.store.put_weights(model)
        kept = None if isinstance(model, Path) else folder
        host = self._own_hosts.get(policy)
        if host is None:
            host = self._own_hosts[policy] = self._make_host(folder)
        else:
            before = self._served.get(policy)
            if before is not None and before.host is host and before.num_in_flight:
                raise RuntimeError(f"policy {policy!r} has calls in flight")
            self._thread.call(host.reload(folder))
        self._thread.call(self._install(policy, _Served(version=version, host=host, folder=kept)))

    async def complete(self, request: CompletionRequest) -> Completion:
        return await self._thread.run(self._complete(request))

    def end_session(self, session: str) -> None:
        """Do nothing: the prefix cache drops what it has no room for."""

    def start(self) -> None:
        """Start the engine on the base now instead of at the first call.

        Raises:
            InfrastructureError: it does not start.
            UserError: vLLM refuses an option.
        """
        if self._base is not None:
            self._thread.call(self._base.ready())

    def sleep(self) -> None:
        """Give the GPU's memory back until the next call, where enable_sleep_mode is set."""
        for host in self._hosts:
            self._thread.call(host.sleep())

    def reset_prefix_cache(self) -> None:
        """Forget all computed prompts; for measurements."""
        for host in self._hosts:
            self._thread.call(host.reset_prefix_cache())

    def close(self) -> None:
        """End all processes; calls in flight fail. The engine cannot be used again."""

        async def shut_down() -> None:
            for host in self._hosts:
                host.close()

        self._thread.call(shut_down())
        self._thread.close()
        self.store.close()

    @property
    def num_in_flight(self) -> int:
        """Calls on present versions that are neither answered nor given up."""
        return sum(served.num_in_flight for served in self._served.values())

    async def _complete(self, request: CompletionRequest) -> Completion:
        served = self._served.get(request.policy)
        if served is None:
            raise InfrastructureError(
                f"engine serves no policy {request.policy!r} (has: {sorted(self._served)})"
            )
        served.num_in_flight += 1
        try:
            await served.host.ready()
            async with asyncio.timeout(self._request_timeout_s):
                completion, num_cached = await served.host.generate(
                    request, end_id=self._end_id, lora=served.lora, version=served.version
                )
        except TimeoutError:
            raise InfrastructureError(
                f"no completion of {request.policy} within {self._request_timeout_s:g} s"
            ) from None
        finally:
            served.num_in_flight -= 1
            await self._retire(served)
        self.num_cached_tokens += num_cached
        return completion

    async def _install(self, policy: str, served: _Served) -> None:
        before = self._served.get(policy)
        self._served[policy] = served
        if before is not None:
            before.is_current = False
            await self._retire(before)

    async def _retire(self, served: _Served) -> None:
        """Forget a version that is neither current nor in use."""
        if served.is_current or served.num_in_flight:
            return
        lora, served.lora = served.lora, None
        if lora is not None:
            await served.host.remove_lora(lora.lora_int_id)
        if served.folder is not None:
            self.store.drop(served.folder)

    def _shared(self, policy: str) -> VLLMHost:
        if self._base is None:
            raise UserError(f"policy {policy!r} needs a base model: give the engine a model folder")
        return self._base

    def _make_host(self, weights: Path) -> VLLMHost:
        return VLLMHost(weights, self._options, seed=self._seed, max_restarts=self._max_restarts)

    @property
    def _hosts(self) -> list[VLLMHost]:
        return [host for host in (self._base, *self._own_hosts.values()) if host is not None]

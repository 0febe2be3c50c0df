"""A client for one or several running `vllm serve` instances: token ids in and out, adapters at run time.

The servers must be started with processed log-probabilities, and run-time
adapters (VLLM_ALLOW_RUNTIME_LORA_UPDATING=1), which vLLM itself calls safe among trusted machines only.
A prompt goes to the replica that has most of it in its prefix cache, unless that one is too busy. A failed
call is tried again on another replica; greedy answers are the same there, sampled ones are just another draw.
"""

import asyncio
import json
import math
import secrets
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

import httpx
from pydantic import BaseModel, Field, ValidationError

from roles.errors import InfrastructureError, UserError
from simulator.engines.adapter_names import adapter_of
from simulator.engines.base import Completion, CompletionRequest
from simulator.engines.loop_thread import LoopThread
from simulator.engines.vllm.adapters import AdapterStore

BLOCK_TOKENS = 16  # vLLM's own default on CUDA; a larger block there only makes the guess less exact


@dataclass(slots=True)
class Replica:
    """One server as the router sees it."""

    url: str
    num_in_flight: int = 0
    is_up: bool = True
    blocks: OrderedDict[int, None] = field(default_factory=OrderedDict)  # chain hashes, oldest use first


class PrefixRouter:
    """Chooses replicas; the caller reports when a request is over and when a replica fails.

    Example: with equal loads, prompts that begin with the same 16 tokens go to the same replica.
    """

    def __init__(self, urls: Sequence[str], *, spill: int = 16, max_blocks: int = 65_536) -> None:
        """`spill`: requests by which a replica may be ahead of the idlest before it gets no more of them.

        Raises:
            ValueError: no replica, or one twice.
        """
        if not urls or len(set(urls)) != len(urls):
            raise ValueError(f"replicas must be one or more different URLs, got {list(urls)}")
        self.replicas = [Replica(url=url) for url in urls]
        self._spill, self._max_blocks = spill, max_blocks

    def choose(
        self, version: str, prompt_ids: Sequence[int], *, avoid: Replica | None = None
    ) -> Replica | None:
        """Choose the replica for this prompt and count it as in flight there; None where none is up.

        Longest known prefix first, then the idlest. `avoid` is taken only if it is the last one up.
        """
        up = [replica for replica in self.replicas if replica.is_up]
        up = [replica for replica in up if replica is not avoid] or up
        if not up:
            return None
        idlest = min(replica.num_in_flight for replica in up)
        open_ones = [replica for replica in up if replica.num_in_flight <= idlest + self._spill]
        chain = self._chain(version, prompt_ids)
        chosen = max(open_ones, key=lambda replica: (_known(replica, chain), -replica.num_in_flight))
        self._remember(chosen, chain)
        chosen.num_in_flight += 1
        return chosen

    def finish(self, replica: Replica) -> None:
        """Count a request of `choose` as over, well or not."""
        replica.num_in_flight -= 1

    def set_up(self, replica: Replica, is_up: bool) -> None:
        """Note that a replica failed (its cache counts as lost) or answers again."""
        if not is_up:
            replica.blocks.clear()
        replica.is_up = is_up

    def _chain(self, version: str, prompt_ids: Sequence[int]) -> list[int]:
        """Return one hash per whole block, each over everything up to its end."""
        before, chain = hash(version), []
        for start in range(0, len(prompt_ids) - BLOCK_TOKENS + 1, BLOCK_TOKENS):
            before = hash((before, tuple(prompt_ids[start : start + BLOCK_TOKENS])))
            chain.append(before)
        return chain

    def _remember(self, replica: Replica, chain: Sequence[int]) -> None:
        for block in chain:
            replica.blocks[block] = None
            replica.blocks.move_to_end(block)
        while len(replica.blocks) > self._max_blocks:
            replica.blocks.popitem(last=False)


def _known(replica: Replica, chain: Sequence[int]) -> int:
    """Return blocks at the start of the chain that the replica was sent."""
    return sum(1 for _ in takewhile(replica.blocks.__contains__, chain))


class BadReplyError(Exception):
    """An answer that cannot be used: wrong shape, a number that is not finite, or cut short by the server."""


class _Logprobs(BaseModel):
    token_logprobs: list[float | None]


class _ServerChoice(BaseModel):
    finish_reason: str | None
    logprobs: _Logprobs
    token_ids: list[int]  # sent because of return_token_ids


class _Reply(BaseModel):
    choices: list[_ServerChoice] = Field(min_length=1, max_length=1)


def read_completion(
    content: bytes, request: CompletionRequest, *, end_id: int | None, version: str
) -> Completion:
    """Read the completion in a reply of `/v1/completions`.

    Raises:
        BadReplyError: says what is wrong.
    """
    try:
        choice = _Reply.model_validate_json(content).choices[0]
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise BadReplyError(f"reply without {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    token_ids, logprobs = tuple(choice.token_ids), choice.logprobs.token_logprobs
    finite = tuple(value for value in logprobs if value is not None and math.isfinite(value))
    if len(finite) != len(token_ids):
        raise BadReplyError("a log-probability is missing or not finite")
    reason = request.find_finish(token_ids, end_id)
    if reason is None:
        raise BadReplyError(
            f"context full: {len(request.prompt_ids)} + {len(token_ids)} tokens"
            f" (finish: {choice.finish_reason})"
        )
    return Completion(token_ids=token_ids, logprobs=finite, finish_reason=reason, policy_version=version)


def read_problem(content: bytes) -> str:
    """Read the message in an error reply, or its first characters."""
    try:
        value: Any = json.loads(content)
        return str(value["error"]["message"])[:300]
    except (ValueError, KeyError, TypeError):
        return content[:300].decode("utf-8", "replace")


MAX_ATTEMPTS = 3  # of a call
PROBE_EVERY_S = 2.0  # how often a replica that failed is asked whether it is back


class _RetryError(Exception):
    """A failure that another attempt may not meet."""


@dataclass(slots=True)
class _ServedAdapter:
    """One version of one policy."""

    name: str  # the model's name at the servers
    version: str
    folder: Path | None = None
    num_in_flight: int = 0
    is_current: bool = True


class VLLMServerEngine:
    """Engine over servers, usable from any event loop; adapters travel as folders that servers can read."""

    def __init__(
        self,
        urls: Sequence[str],
        *,
        end_id: int | None,
        store: Path | None = None,
        name: str | None = None,
        is_loader: bool = True,
        spare_versions: int = 0,
        request_timeout_s: float = 600.0,
    ) -> None:
        """`store`: a folder that all servers see, where adapters are put (None: memory, which servers on this
        machine see). Clients of one `name` are given the same policies in the same order; one of them is the
        loader, the others wait until its adapters are there. They may be `spare_versions` behind it.

        Raises:
            UserError: not URLs, or the store cannot be written to.
        """
        for url in urls:
            if not url.startswith(("http://", "https://")):
                raise UserError(f"engine.servers: {url!r} is not a URL such as http://127.0.0.1:8000")
        self._router = PrefixRouter([url.rstrip("/") for url in urls])
        self._end_id = end_id
        self._model: str | None = None  # the base model's name at the servers, once it was asked
        self._served: dict[str, _ServedAdapter] = {}
        self._num_loaded, self._name = 0, name or secrets.token_hex(4)  # no other clients use the same names
        self._is_loader, self._spare_versions = is_loader, spare_versions
        self._spare: dict[str, deque[_ServedAdapter]] = {}
        self._load_timeout_s = request_timeout_s
        self._probes: dict[str, asyncio.Task[None]] = {}
        try:
            if store is not None:
                store.mkdir(parents=True, exist_ok=True)
            self._store = AdapterStore(store)
        except OSError as error:
            raise UserError(f"engine.adapter_folder {str(store)!r}: {error.strerror}") from error
        self._thread = LoopThread("vllm-server-client")
        self._http = httpx.AsyncClient(
            timeout=httpx.Timeout(request_timeout_s, connect=10.0),
            limits=httpx.Limits(max_connections=None),
            follow_redirects=False,
            trust_env=False,
        )
        weakref.finalize(self, self._store.close)

    def set_policy(self, policy: str, model: Any = None, *, version: str, adapter: str | None = None) -> None:
        """Serve `policy` by a PEFT model or PEFT folder, or by the servers' base (None).

        Raises:
            InfrastructureError: a server does not load it; the earlier version goes on.
            UserError: full weights, which running servers cannot take.
        """
        if model is None:
            self._thread.call(self._install(policy, None, version))
            return
        if not isinstance(model, Path) and not hasattr(model, "peft_config"):
            raise UserError(
                f"policy {policy!r} has full weights; running servers take adapters:"
                f" train with model.adapter=lora"
            )
        if adapter is None and not isinstance(model, Path):
            adapter = adapter_of(model, policy)
        if not self._is_loader:
            self._thread.call(self._await_loaded(policy, version))
            return
        folder = self._store.put(model, adapter=adapter or "default")
        try:
            self._thread.call(self._install(policy, folder, version))
        except BaseException:
            self._store.drop(folder)
            raise

    async def complete(self, request: CompletionRequest) -> Completion:
        return await self._thread.run(self._complete(request))

    def end_session(self, session: str) -> None:
        """Do nothing: the servers' prefix caches drop what they have no room for."""

    def close(self) -> None:
        """Take our adapters off the servers and hang up."""
        self._thread.call(self._hang_up())
        self._thread.close()
        self._store.close()

    async def _hang_up(self) -> None:
        for served in [*self._served.values(), *(one for kept in self._spare.values() for one in kept)]:
            served.is_current = False
            await self._retire(served)
        await self._http.aclose()

    async def _complete(self, request: CompletionRequest) -> Completion:
        served = self._served.get(request.policy)
        if served is None:
            raise InfrastructureError(
                f"engine serves no policy {request.policy!r} (has: {sorted(self._served)})"
            )
        served.num_in_flight += 1
        try:
            return await self._attempt_all(request, served)
        finally:
            served.num_in_flight -= 1
            await self._retire(served)

    async def _attempt_all(self, request: CompletionRequest, served: _ServedAdapter) -> Completion:
        body = self._encode(request, served.name)
        avoid: Replica | None = None
        problem = "no server is up"
        for attempt in range(MAX_ATTEMPTS):
            replica = self._router.choose(served.name, request.prompt_ids, avoid=avoid)
            if replica is None:
                await asyncio.sleep(min(PROBE_EVERY_S, 0.2 * 2**attempt))
                continue
            try:
                content = await self._post(replica, "/v1/completions", body)
                return read_completion(content, request, end_id=self._end_id, version=served.version)
            except _RetryError as error:
                problem, avoid = str(error), replica
            except BadReplyError as error:
                raise InfrastructureError(f"{replica.url}: {error}") from error
            finally:
                self._router.finish(replica)
        raise InfrastructureError(f"no completion after {MAX_ATTEMPTS} attempts: {problem}")

    def _encode(self, request: CompletionRequest, name: str) -> dict[str, Any]:
        return {
            "model": name,
            "prompt": list(request.prompt_ids),
            "max_tokens": request.sampling.max_completion_tokens,
            "temperature": request.sampling.temperature,
            "top_p": 1.0,
            "top_k": 0,
            "min_p": 0.0,
            "repetition_penalty": 1.0,  # else the server takes that of the model's own generation config
            "logprobs": 0,
            "ignore_eos": True,
            "stop_token_ids": [] if self._end_id is None else [self._end_id],
            "return_token_ids": True,
            "skip_special_tokens": False,
        }

    async def _post(self, replica: Replica, path: str, body: Mapping[str, Any]) -> bytes:
        """Send one request.

        Raises:
            _RetryError: the replica cannot be reached or fails; it is set down until it answers again.
            InfrastructureError: it refuses the request.
        """
        try:
            response = await self._http.post(replica.url + path, json=body)
        except httpx.TimeoutException as error:
            raise _RetryError(f"{replica.url}: no answer in time ({type(error).__name__})") from error
        except httpx.HTTPError as error:
            self._set_down(replica)
            raise _RetryError(f"{replica.url}: {type(error).__name__} {error}".strip()) from error
        if response.status_code == 200:
            return response.content
        problem = f"{replica.url} answers {response.status_code}: {read_problem(response.content)}"
        if response.status_code >= 500 or response.status_code == 429:
            if not await self._is_healthy(replica):
                self._set_down(replica)
            raise _RetryError(problem)
        raise InfrastructureError(problem)

    async def _is_healthy(self, replica: Replica) -> bool:
        try:
            return (await self._http.get(replica.url + "/health", timeout=10.0)).status_code == 200
        except httpx.HTTPError:
            return False

    def _set_down(self, replica: Replica) -> None:
        self._router.set_up(replica, False)
        if replica.url not in self._probes:
            self._probes[replica.url] = asyncio.get_running_loop().create_task(self._bring_back(replica))

    async def _bring_back(self, replica: Replica) -> None:
        """Ask until the replica is healthy, give it the adapters in use, then let calls go there again."""
        while True:
            await asyncio.sleep(PROBE_EVERY_S)
            if not await self._is_healthy(replica):
                continue
            try:
                for served in self._served.values():
                    if served.folder is not None:
                        await self._load(replica, served)
            except (InfrastructureError, _RetryError):
                continue
            self._router.set_up(replica, True)
            del self._probes[replica.url]
            return

    async def _install(self, policy: str, folder: Path | None, version: str) -> None:
        if folder is None:
            served = _ServedAdapter(name=await self._base_name(), version=version)
        else:
            served = _ServedAdapter(name=self._next_name(version), version=version, folder=folder)
            up = [replica for replica in self._router.replicas if replica.is_up]
            try:
                await asyncio.gather(*(self._load(replica, served) for replica in up))
            except _RetryError as error:
                raise InfrastructureError(f"adapter {policy}@{version} is not loaded: {error}") from error
        await self._replace(policy, served)

    def _next_name(self, version: str) -> str:
        """Return the name of the next adapter, the same for all clients of one name."""
        self._num_loaded += 1
        return f"{version}#{self._name}.{self._num_loaded}"

    async def _await_loaded(self, policy: str, version: str) -> None:
        """Serve the adapter that the loader gives to the servers, as soon as all of them have it."""
        name, deadline = self._next_name(version), time.monotonic() + self._load_timeout_s
        for replica in self._router.replicas:
            while replica.is_up and name not in await self._list_models(replica.url):
                if time.monotonic() > deadline:
                    late = f"{replica.url} in {self._load_timeout_s:g} s"
                    raise InfrastructureError(f"adapter {policy}@{version} did not come to {late}")
                await asyncio.sleep(0.05)
        await self._replace(policy, _ServedAdapter(name=name, version=version))

    async def _replace(self, policy: str, served: _ServedAdapter) -> None:
        """Serve another version; older ones go when no client can be at them any more."""
        before = self._served.get(policy)
        self._served[policy] = served
        spare = self._spare.setdefault(policy, deque())
        if before is not None:
            spare.append(before)
        while len(spare) > self._spare_versions:
            oldest = spare.popleft()
            oldest.is_current = False
            await self._retire(oldest)

    async def _load(self, replica: Replica, served: _ServedAdapter) -> None:
        body = {"lora_name": served.name, "lora_path": str(served.folder)}
        try:
            await self._post(replica, "/v1/load_lora_adapter", body)
        except InfrastructureError as error:
            if "already been loaded" not in str(error):
                raise

    async def _retire(self, served: _ServedAdapter) -> None:
        """Forget a version that is neither current nor in use."""
        if served.is_current or served.num_in_flight or served.folder is None:
            return
        folder, served.folder = served.folder, None
        for replica in self._router.replicas:
            if replica.is_up:
                try:
                    await self._post(replica, "/v1/unload_lora_adapter", {"lora_name": served.name})
                except (_RetryError, InfrastructureError):
                    continue  # a server that forgot it already, or is gone with all it had
        self._store.drop(folder)

    async def _base_name(self) -> str:
        """Return the name under which the servers serve their base model."""
        if self._model is None:
            url = self._router.replicas[0].url
            try:
                models = await self._list_models(url)
                self._model = next(name for name, parent in models.items() if parent is None)
            except StopIteration as error:
                raise InfrastructureError(f"{url} does not name its base model: {models}") from error
        return self._model

    async def _list_models(self, url: str) -> dict[str, str | None]:
        """Return the models that a server names, each adapter with its base."""
        try:
            models = (await self._http.get(url + "/v1/models")).json()["data"]
            return {str(one["id"]): one.get("parent") for one in models}
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            raise InfrastructureError(f"{url} does not list its models: {error!r}") from error

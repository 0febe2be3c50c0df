"""Lanes of the embedded engine: the transcripts that one model decodes side by side, and their prompts."""

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from roles.errors import InfrastructureError
from simulator.engines.base import Completion, CompletionRequest
from simulator.engines.embedded.kv_window import GraphStep, KVWindow
from simulator.engines.embedded.lora_rows import AdapterStack
from simulator.records import FinishReason

PREFILL_TOKENS = 16_384  # padded tokens per prefill forward

Call = tuple[CompletionRequest, asyncio.Future[Completion]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One version of one policy. Example: Policy(name="cto", adapter="cto", version="cto@17")"""

    name: str
    adapter: str | None  # of the lane's model; None: full weights
    version: str


@dataclass(slots=True)
class Row:
    """One open transcript in a lane."""

    policy: Policy
    session: str
    stream: int
    cached: list[int]  # tokens whose keys are in the window
    forced: deque[int] = field(default_factory=deque)  # given tokens still to be fed
    request: CompletionRequest | None = None  # None: waiting for its agent
    future: asyncio.Future[Completion] | None = None
    sampled: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    ended: bool = False
    is_spoilt: bool = False  # its keys are not finite

    @property
    def samples(self) -> bool:
        """Return whether the row has a call and has been fed what it was given: its next token is sampled."""
        return self.request is not None and not self.forced

    @property
    def temperature(self) -> float:
        """Sampling temperature of its call; 0 while it waits."""
        return self.request.sampling.temperature if self.request else 0.0

    def resume(self, request: CompletionRequest, future: asyncio.Future[Completion], new: list[int]) -> None:
        """Continue the transcript: `new` tokens are given, then it samples."""
        self.request, self.future, self.forced = request, future, deque(new)
        self.sampled, self.logprobs, self.ended = [], [], False

    def next_input(self) -> int:
        """Return the token to feed: a given one, else the last sampled one."""
        token = self.forced.popleft() if self.forced else self.sampled[-1]
        self.cached.append(token)
        return token

    def take(self, token: int, logprob: float, end_id: int | None) -> None:
        """Take the sampled token; answer the call if that was its last one."""
        assert self.request is not None
        self.sampled.append(token)
        self.logprobs.append(logprob)
        if token == end_id:
            self._answer("stop")
        elif len(self.sampled) >= self.request.sampling.max_completion_tokens:
            self._answer("length")

    def fail(self, error: InfrastructureError) -> None:
        """Fail the call; the row's keys are of no use."""
        self.is_spoilt = True
        future, self.request, self.future = self.future, None, None
        if future is not None and not future.done():
            future.set_exception(error)

    def _answer(self, reason: FinishReason) -> None:
        completion = Completion(
            token_ids=tuple(self.sampled),
            logprobs=tuple(self.logprobs),
            finish_reason=reason,
            policy_version=self.policy.version,
        )
        future, self.request, self.future = self.future, None, None
        if future is not None and not future.done():
            future.set_result(completion)


@dataclass(slots=True, eq=False)
class Lane:
    """One model, its rows (row i of the window is rows[i]) and its queue; policies share it by adapters."""

    model: Any
    policies: dict[str, Policy] = field(default_factory=dict)
    is_stacked: bool = False  # all adapters in one pass; else one policy, whose adapter is made active
    stack: AdapterStack | None = None  # of the weights of the first step after a policy was set
    by_whole_texts: bool = False  # the model's own pass over each text; the window stays empty
    is_stale: bool = True  # whether a policy was set since
    window: KVWindow = field(default_factory=KVWindow)
    steps: GraphStep | None = None  # where steps are recorded
    rows: list[Row] = field(default_factory=list)
    queue: list[Call] = field(default_factory=list)
    pending: set[asyncio.Future[Completion]] = field(default_factory=set)  # all calls not yet answered

    @property
    def is_busy(self) -> bool:
        return bool(self.queue) or any(row.request for row in self.rows)

    def has_calls_of(self, policy: str) -> bool:
        """Return whether calls of this policy are in flight."""
        waiting = any(request.policy == policy for request, _ in self.queue)
        return waiting or any(row.request for row in self.rows if row.policy.name == policy)

    def forget(self, policy: str) -> None:
        """Drop a policy with its rows."""
        if any(row.policy.name == policy for row in self.rows):
            self.keep([i for i, row in enumerate(self.rows) if row.policy.name != policy])
        self.policies.pop(policy, None)
        self.is_stale = True

    def bring_up_to_date(self) -> None:
        """Stack the adapters as they are now, in the same tensors where there are no others."""
        if self.is_stacked and self.is_stale:
            adapters = list(dict.fromkeys(str(policy.adapter) for policy in self.policies.values()))
            if self.stack is None or not self.stack.refresh(adapters):
                self.stack, self.steps = AdapterStack(self.model, adapters), None
        self.is_stale = False

    def places(self, rows: Sequence[Row]) -> list[int]:
        """Return of each row the place of its adapter in the stack; 0 without a stack."""
        if self.stack is None:
            return [0] * len(rows)
        place = {name: number for number, name in enumerate(self.stack.adapters)}
        return [place[str(row.policy.adapter)] for row in rows]

    def route(self, places: Tensor) -> AbstractContextManager[None]:
        """While this is open, each row passes through its adapter, if adapters share the lane."""
        return nullcontext() if self.stack is None else self.stack.route(places)

    def keep(self, keep: list[int]) -> None:
        """Drop all other rows."""
        if not self.by_whole_texts:
            self.window.keep_rows(keep)
        self.rows = [self.rows[i] for i in keep]

    def bring_to_front(self, chosen: Sequence[int]) -> None:
        """Let these rows stand first: a step may then leave the others out."""
        behind = [i for i in chosen if i >= len(chosen)]
        ahead = sorted(set(range(len(chosen))) - set(chosen))
        if behind:
            self.window.swap_rows(ahead, behind)
            for i, j in zip(ahead, behind, strict=True):
                self.rows[i], self.rows[j] = self.rows[j], self.rows[i]

    def drop_ended(self) -> None:
        """Free finished transcripts once they are at least a third of the rows (moving rows costs a copy)."""
        ended = sum(row.ended for row in self.rows)
        if ended and 3 * ended >= len(self.rows):
            self.keep([i for i, row in enumerate(self.rows) if not row.ended])

    def drop_cancelled(self) -> None:
        """Sample no further for callers that no longer wait."""
        self.queue = [(request, future) for request, future in self.queue if not future.cancelled()]
        for row in self.rows:
            if row.future is not None and row.future.cancelled():
                row.request, row.future = None, None

    def rest(self) -> None:
        """Drop all transcripts where they hold more than half of a GPU's memory: a learner comes next."""
        memory = device_memory(self.window.valid.device)
        if memory is not None and self.window.num_bytes > memory / 2 and not self.is_busy:
            self._drop_all()
            torch.cuda.empty_cache()

    def _drop_all(self) -> None:
        self.rows, self.steps = [], None
        self.window = KVWindow(is_fixed=self.window.is_fixed)

    def fail(self, error: Exception) -> None:
        """Fail all calls."""
        self.queue = []
        self._drop_all()
        for future in list(self.pending):
            if not future.done():
                future.set_exception(error)


def on_device(device: torch.device) -> AbstractContextManager[Any]:
    """While this is open, a GPU is the current one: CUDA gives every new thread the first."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def device_memory(device: torch.device) -> int | None:
    """Return the bytes of a GPU's memory; None for others."""
    return int(torch.cuda.get_device_properties(device).total_memory) if device.type == "cuda" else None


def length_buckets(rows: list[Row]) -> list[list[Row]]:
    """Sort rows by prompt length, cut so that a padded batch stays under PREFILL_TOKENS."""
    buckets: list[list[Row]] = []
    for row in sorted(rows, key=lambda row: len(row.cached)):
        if not buckets or (len(buckets[-1]) + 1) * len(row.cached) > PREFILL_TOKENS:
            buckets.append([])
        buckets[-1].append(row)
    return buckets


def prefill(lane: Lane, rows: list[Row], filler_id: int) -> None:
    """Compute the prompts of new rows, equal ones of a policy once, and give the rows to the lane."""
    for batch in length_buckets(rows):
        firsts: dict[tuple[str, tuple[int, ...]], Row] = {}
        keys = [(row.policy.name, tuple(row.cached)) for row in batch]
        for key, row in zip(keys, batch, strict=True):
            firsts.setdefault(key, row)
        cache, valid = _read_prompts(lane, list(firsts.values()), filler_id)
        if len(firsts) < len(batch):
            places = {key: place for place, key in enumerate(firsts)}
            owner = torch.tensor([places[key] for key in keys], device=valid.device)
            cache.batch_select_indices(owner)
            valid = valid[owner]
        lane.window.append_rows(cache, valid)
        lane.rows.extend(batch)


def _read_prompts(lane: Lane, rows: list[Row], filler_id: int) -> tuple[DynamicCache, Tensor]:
    """Return keys and values of the rows' prompts, and (rows, width) bool: left-padded, which are a row's."""
    texts = [row.cached for row in rows]
    width = max(1, *map(len, texts))
    device = next(lane.model.parameters()).device
    ids = torch.full((len(texts), width), filler_id, dtype=torch.long)
    valid = torch.zeros(len(texts), width, dtype=torch.bool)
    for i, text in enumerate(texts):
        if text:
            ids[i, width - len(text) :] = torch.tensor(text)
            valid[i, width - len(text) :] = True
    ids, valid = ids.to(device), valid.to(device)
    causal = torch.ones(width, width, dtype=torch.bool, device=device).tril()
    mask = (causal & valid[:, None, :]) | torch.eye(width, dtype=torch.bool, device=device)
    cache = DynamicCache()
    with lane.route(torch.tensor(lane.places(rows), device=device)[:, None]):
        lane.model.get_decoder()(  # without the output head: nothing is sampled here
            input_ids=ids,
            attention_mask=mask[:, None],
            position_ids=(valid.cumsum(1) - 1).clamp(min=0),
            past_key_values=cache,
            use_cache=True,
        )
    return cache, valid

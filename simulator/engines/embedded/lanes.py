"""Bookkeeping of the embedded engine: transcripts that a model decodes side by side, and guesses at them."""

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from roles.errors import InfrastructureError
from simulator.engines.base import Completion, CompletionRequest
from simulator.engines.embedded.grouped_attention import SharedText, can_share
from simulator.engines.embedded.kv_window import KVWindow
from simulator.engines.embedded.lora_rows import AdapterStack
from simulator.engines.embedded.static_window import GraphStep, StaticWindow
from simulator.records import FinishReason

SIZES = (8, 4, 2)  # tokens that must agree, the longest first
MOST_PLACES = 4  # of one run of tokens that are remembered
MOST_TOKENS = 1 << 19  # of all texts; then all is forgotten

_Runs = dict[tuple[int, ...], deque[tuple[list[int], int]]]


@dataclass(slots=True, eq=False)
class Guesses:
    """Remembers what followed each run of tokens, latest first, in the texts of one policy.

    Many tokens of a tool call or an answer repeat an earlier text. Guesses stand behind the last token of a
    pass that samples at all places, and are kept up to the first that was not sampled: transcripts are those
    of sampling one by one. Source: prompt lookup decoding; across rollouts, SuffixDecoding, arXiv:2411.04975.
    """

    _runs: dict[int, _Runs] = field(default_factory=lambda: {size: {} for size in SIZES})
    _num_tokens: int = 0

    def learn(self, text: list[int], start: int) -> None:
        """Remember what stands at places `start` and later; `text` may grow afterwards."""
        if self._num_tokens > MOST_TOKENS:
            self._runs, self._num_tokens = {size: {} for size in SIZES}, 0
        self._num_tokens += len(text) - start
        for size, runs in self._runs.items():
            for place in range(max(start, size), len(text)):
                run = tuple(text[place - size : place])
                runs.setdefault(run, deque(maxlen=MOST_PLACES)).appendleft((text, place))

    def find(self, text: Sequence[int], count: int) -> list[int]:
        """Return up to `count` tokens that may follow `text`: of the latest place that has as many."""
        best: list[int] = []
        if count < 1:
            return best
        for size, runs in self._runs.items():
            for source, place in runs.get(tuple(text[-size:]), ()):
                found = source[place : place + count]
                if len(found) == count:
                    return found
                if len(found) > len(best):
                    best = found
        return best


PREFILL_TOKENS = 16_384  # padded tokens per prefill forward
WIDE = 512  # hidden size from which a pass costs more than its calls: see `Lane.is_wide`

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
    shared: SharedText | None = None  # what its prompt begins with, which is not in the window
    num_learnt: int = 0  # tokens that guesses are made from
    num_guesses: int = 4  # at a time: grows and shrinks with their success

    @property
    def samples(self) -> bool:
        """Return whether the row has a call and has been fed what it was given: its next token is sampled."""
        return self.request is not None and not self.forced

    @property
    def temperature(self) -> float:
        """Sampling temperature of its call; 0 while it waits."""
        return self.request.sampling.temperature if self.request else 0.0

    @property
    def num_shared(self) -> int:
        """Tokens whose keys are shared with other rows."""
        return len(self.shared.tokens) if self.shared else 0

    def resume(self, request: CompletionRequest, future: asyncio.Future[Completion], new: list[int]) -> None:
        """Continue the transcript: `new` tokens are given, then it samples."""
        self.request, self.future, self.forced = request, future, deque(new)
        self.sampled, self.logprobs, self.ended = [], [], False

    def next_inputs(self, most: int) -> list[int]:
        """Return up to `most` tokens to feed: given ones, else the last sampled one."""
        if self.forced:
            tokens = [self.forced.popleft() for _ in range(min(most, len(self.forced)))]
        else:
            tokens = self.sampled[-1:]
        self.cached += tokens
        return tokens

    def take(self, token: int, logprob: float, end_id: int | None) -> None:
        """Take the sampled token; answer the call if that was its last one."""
        assert self.request is not None
        self.sampled.append(token)
        self.logprobs.append(logprob)
        if token == end_id:
            self._answer("stop")
        elif len(self.sampled) >= self.request.sampling.max_completion_tokens:
            self._answer("length")

    def adapt_guesses(self, tried: int, right: int) -> None:
        """Guess more tokens at a time where all were right, else about as many as were."""
        if tried:
            self.num_guesses = 2 * tried if right == tried else right + 1

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
    trunks: dict[str, SharedText] = field(default_factory=dict)  # what prompts of a policy begin with
    guesses: dict[str, Guesses] = field(default_factory=dict)  # of a policy
    steps: GraphStep | None = None  # where the window is static
    rows: list[Row] = field(default_factory=list)
    queue: list[Call] = field(default_factory=list)
    pending: set[asyncio.Future[Completion]] = field(default_factory=set)  # all calls not yet answered

    @property
    def is_wide(self) -> bool:
        """Return whether passes over common prompts and over observations are worth what they save."""
        return int(self.model.config.hidden_size) >= WIDE

    @property
    def takes_blocks(self) -> bool:
        """Return whether rows can be fed several tokens in a pass, and what they share is kept beside them.

        Rows of fixed buffers take one token a step.
        """
        return self.is_wide and not isinstance(self.window, StaticWindow) and can_share(self.model)

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
        self.trunks.pop(policy, None)
        self.guesses.pop(policy, None)
        self.is_stale = True

    def bring_up_to_date(self) -> None:
        """Stack the adapters as they are now, in the same tensors where there are no others."""
        if self.is_stacked and self.is_stale:
            adapters = list(dict.fromkeys(str(policy.adapter) for policy in self.policies.values()))
            if self.stack is None or not self.stack.refresh(adapters):
                self.stack, self.steps = AdapterStack(self.model, adapters, merges=self.is_wide), None
        self.is_stale = False

    def guess(self, row: Row, most: int) -> list[int]:
        """Return tokens that may follow what the row holds, fewer than it may still sample."""
        guesses = self.guesses.setdefault(row.policy.name, Guesses())
        guesses.learn(row.cached, max(row.num_learnt, row.num_shared))
        row.num_learnt = len(row.cached)
        assert row.request is not None
        left = row.request.sampling.max_completion_tokens - len(row.sampled) - 1
        return guesses.find(row.cached, min(most, row.num_guesses, left))

    def places(self, rows: Sequence[Row]) -> list[int]:
        """Of each row the place of its adapter in the stack; 0 without one."""
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
        self.rows, self.window, self.steps, self.trunks = [], type(self.window)(), None, {}

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

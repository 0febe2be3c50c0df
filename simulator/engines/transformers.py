"""The embedded engine: Hugging Face models in this process, continuous batching, cache kept across turns.

One lane per policy. A lane decodes all its open transcripts together, one token per row and step.
A transcript that goes on (tool observation, further message) feeds its new tokens through the same
steps while its neighbours sample, so nobody waits at a turn barrier and no prompt is computed twice.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from roles.errors import InfrastructureError
from simulator.engines.adapter_names import adapter_of
from simulator.engines.base import Completion, CompletionRequest, FinishReason
from simulator.engines.kv_window import KVWindow
from simulator.engines.sampling import sample_tokens, session_seed

PREFILL_TOKENS = 16_384  # padded tokens per prefill forward
MAX_FORCED_TOKENS = 96  # a longer continuation is prefilled afresh
QUIET_YIELDS = 12  # event-loop turns without a new request before a step is taken


@dataclass(slots=True)
class _Row:
    """One open transcript in a lane."""

    session: str
    stream: int
    cached: list[int]  # tokens whose keys are in the window
    forced: deque[int] = field(default_factory=deque)  # given tokens still to be fed
    request: CompletionRequest | None = None  # None: waiting for its agent
    future: asyncio.Future[Completion] | None = None
    sampled: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    ended: bool = False


@dataclass(slots=True)
class _Lane:
    """One policy: its model, its rows (row i of the window is rows[i]), its queue."""

    model: Any
    adapter: str | None
    version: str
    window: KVWindow = field(default_factory=KVWindow)
    rows: list[_Row] = field(default_factory=list)
    queue: list[tuple[CompletionRequest, asyncio.Future[Completion]]] = field(default_factory=list)
    pending: set[asyncio.Future[Completion]] = field(default_factory=set)  # all calls not yet answered


class TransformersEngine:
    """Engine over in-process models; several policies, each with its own weights or adapter."""

    def __init__(self, *, end_id: int, seed: int = 0, max_rows: int = 512) -> None:
        self.end_id = end_id
        self.seed = seed
        self.max_rows = max_rows
        self._lanes: dict[str, _Lane] = {}
        self._open: dict[str, list[_Row]] = {}  # rows of each session not yet given back
        self._driver: asyncio.Task[None] | None = None
        self._arrivals = 0

    def set_policy(self, policy: str, model: Any, *, version: str, adapter: str | None = None) -> None:
        """Serve `policy` from `model` (a causal LM); replaces an earlier one, whose cache is dropped.

        A PEFT model may serve several policies; `adapter` None takes the policy's own (see adapter_names).

        Raises:
            RuntimeError: transcripts of the policy are in flight.
        """
        lane = self._lanes.get(policy)
        if lane is not None and (lane.queue or any(row.request for row in lane.rows)):
            raise RuntimeError(f"policy {policy!r} has calls in flight")
        adapter = adapter or adapter_of(model, policy)
        self._lanes[policy] = _Lane(model=model, adapter=adapter, version=version)

    async def complete(self, request: CompletionRequest) -> Completion:
        lane = self._lanes.get(request.policy)
        if lane is None:
            raise InfrastructureError(
                f"engine serves no policy {request.policy!r} (has: {sorted(self._lanes)})"
            )
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Completion] = loop.create_future()
        lane.queue.append((request, future))
        lane.pending.add(future)
        future.add_done_callback(lane.pending.discard)
        self._arrivals += 1
        if self._driver is None or self._driver.done():
            self._driver = loop.create_task(self._drive())
        return await future

    def end_session(self, session: str) -> None:
        for row in self._open.pop(session, ()):
            row.ended = True

    async def _drive(self) -> None:
        while True:
            await self._wait_until_quiet()
            busy = False
            for lane in self._lanes.values():
                if lane.queue or any(row.request for row in lane.rows):
                    busy = True
                    try:
                        self._step_lane(lane)
                    except (RuntimeError, MemoryError) as error:  # out of memory, a bad kernel
                        _fail_lane(lane, InfrastructureError(f"engine step failed: {error}"))
            if not busy:
                return

    async def _wait_until_quiet(self) -> None:
        """Let the agents that just got an answer hand in their next call, so that calls batch."""
        quiet = 0
        while quiet < QUIET_YIELDS:
            before = self._arrivals
            await asyncio.sleep(0)
            quiet = quiet + 1 if self._arrivals == before else 0

    def _step_lane(self, lane: _Lane) -> None:
        model = lane.model
        was_training = model.training
        model.eval()
        if lane.adapter is not None:
            model.set_adapter(lane.adapter)
        with torch.no_grad():
            _drop_ended(lane)
            self._admit(lane)
            if any(row.request for row in lane.rows):
                self._decode(lane)
        if was_training:
            model.train()

    def _admit(self, lane: _Lane) -> None:
        """Move queued calls onto rows: continue an open transcript, or prefill a new one."""
        if not lane.queue:
            return
        by_session = {row.session: index for index, row in enumerate(lane.rows)}
        fresh: list[_Row] = []
        stale: set[int] = set()
        waiting: list[tuple[CompletionRequest, asyncio.Future[Completion]]] = []
        for request, future in lane.queue:
            index = by_session.get(request.session)
            prompt = list(request.prompt_ids)
            if index is not None:
                row = lane.rows[index]
                new = prompt[len(row.cached) :]
                if 0 < len(new) <= MAX_FORCED_TOKENS and prompt[: len(row.cached)] == row.cached:
                    row.request, row.future, row.forced = request, future, deque(new)
                    row.sampled, row.logprobs = [], []
                    continue
                stale.add(index)
            if len(lane.rows) - len(stale) + len(fresh) >= self.max_rows:
                waiting.append((request, future))
                continue
            stream = session_seed(self.seed, request.session)
            row = _Row(session=request.session, stream=stream, cached=prompt, request=request, future=future)
            self._open.setdefault(request.session, []).append(row)
            fresh.append(row)
        lane.queue = waiting
        if stale:
            _keep(lane, [i for i in range(len(lane.rows)) if i not in stale])
        for batch in _length_buckets(fresh):
            self._prefill(lane, batch)

    def _prefill(self, lane: _Lane, rows: list[_Row]) -> None:
        """Compute the prompts of new rows but for their last token, which the next step feeds."""
        for row in rows:
            row.forced = deque(row.cached[-1:])
            row.cached = row.cached[:-1]
        width = max(1, max(len(row.cached) for row in rows))
        device = next(lane.model.parameters()).device
        ids = torch.full((len(rows), width), self.end_id, dtype=torch.long)
        valid = torch.zeros(len(rows), width, dtype=torch.bool)
        for i, row in enumerate(rows):
            if row.cached:
                ids[i, width - len(row.cached) :] = torch.tensor(row.cached)
                valid[i, width - len(row.cached) :] = True
        ids, valid = ids.to(device), valid.to(device)
        causal = torch.ones(width, width, dtype=torch.bool, device=device).tril()
        mask = (causal & valid[:, None, :]) | torch.eye(width, dtype=torch.bool, device=device)
        cache = DynamicCache()
        lane.model(
            input_ids=ids,
            attention_mask=mask[:, None],
            position_ids=(valid.cumsum(1) - 1).clamp(min=0),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        lane.window.append_rows(cache, valid)
        lane.rows.extend(rows)

    def _decode(self, lane: _Lane) -> None:
        """One token for every active row: a given one if it has any, else the one it sampled last."""
        window = lane.window
        if window.column > 2 * window.longest_row() + 32:
            window.keep_rows(list(range(len(lane.rows))))
        fed = [row.request is not None for row in lane.rows]
        tokens = [
            _next_input(row, self.end_id) if on else self.end_id
            for row, on in zip(lane.rows, fed, strict=True)
        ]
        positions = [len(row.cached) - int(on) for row, on in zip(lane.rows, fed, strict=True)]
        device = window.valid.device
        cache = window.cache()
        output = lane.model(
            input_ids=torch.tensor(tokens, device=device)[:, None],
            attention_mask=window.step_mask(),
            position_ids=torch.tensor(positions, device=device)[:, None],
            past_key_values=cache,
            use_cache=True,
        )
        window.advance(torch.tensor(fed, device=device))
        picking = [i for i, row in enumerate(lane.rows) if row.request is not None and not row.forced]
        if picking:
            self._pick(lane, picking, output.logits[:, -1])

    def _pick(self, lane: _Lane, picking: list[int], logits: Tensor) -> None:
        rows = [lane.rows[i] for i in picking]
        device = logits.device
        temperatures = torch.tensor([_request(row).sampling.temperature for row in rows], device=device)
        streams = torch.tensor([row.stream for row in rows], device=device)
        positions = torch.tensor([len(row.cached) for row in rows], device=device)
        ids, logprobs = sample_tokens(logits[picking], temperatures, streams, positions)
        for row, token, logprob in zip(rows, ids.tolist(), logprobs.tolist(), strict=True):
            row.sampled.append(token)
            row.logprobs.append(logprob)
            if token == self.end_id:
                _finish(row, "stop", lane.version)
            elif len(row.sampled) >= _request(row).sampling.max_completion_tokens:
                _finish(row, "length", lane.version)


def _request(row: _Row) -> CompletionRequest:
    assert row.request is not None
    return row.request


def _next_input(row: _Row, end_id: int) -> int:
    token = row.forced.popleft() if row.forced else row.sampled[-1]
    row.cached.append(token)
    return token


def _finish(row: _Row, reason: FinishReason, version: str) -> None:
    completion = Completion(
        token_ids=tuple(row.sampled),
        logprobs=tuple(row.logprobs),
        finish_reason=reason,
        policy_version=version,
    )
    future, row.request, row.future = row.future, None, None
    if future is not None and not future.done():
        future.set_result(completion)


def _fail_lane(lane: _Lane, error: InfrastructureError) -> None:
    lane.queue, lane.rows, lane.window = [], [], KVWindow()
    for future in list(lane.pending):
        if not future.done():
            future.set_exception(error)


def _keep(lane: _Lane, keep: list[int]) -> None:
    lane.window.keep_rows(keep)
    lane.rows = [lane.rows[i] for i in keep]


def _drop_ended(lane: _Lane) -> None:
    """Free finished transcripts once they are at least a third of the rows (moving rows costs a copy)."""
    ended = sum(row.ended for row in lane.rows)
    if ended and 3 * ended >= len(lane.rows):
        _keep(lane, [i for i, row in enumerate(lane.rows) if not row.ended])


def _length_buckets(rows: list[_Row]) -> list[list[_Row]]:
    """Rows sorted by prompt length, cut so that a padded batch stays under PREFILL_TOKENS."""
    buckets: list[list[_Row]] = []
    for row in sorted(rows, key=lambda row: len(row.cached)):
        if not buckets or (len(buckets[-1]) + 1) * len(row.cached) > PREFILL_TOKENS:
            buckets.append([])
        buckets[-1].append(row)
    return buckets

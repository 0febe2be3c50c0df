"""The embedded engine: Hugging Face models in this process, continuous batching, cache kept across turns.

One lane per model. A lane decodes all its open transcripts together, one token per row and step; policies
that are adapters of one model share its lane, and every row passes through its own adapter (lora_rows.py).
A transcript that goes on (tool observation, further message) feeds its new tokens through the same
steps while its neighbours sample, so no row waits at a turn barrier and no prompt is computed twice.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Sequence
from contextvars import Context
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from roles.errors import InfrastructureError
from simulator.engines.adapter_names import adapter_of
from simulator.engines.base import Completion, CompletionRequest, Sampling
from simulator.engines.embedded import own_pass
from simulator.engines.embedded.grouped_attention import use_grouped_attention
from simulator.engines.embedded.kv_window import GraphStep, KVWindow
from simulator.engines.embedded.lanes import Call, Lane, Policy, Row, on_device, prefill
from simulator.engines.embedded.lora_rows import can_stack
from simulator.engines.sampling import sample_tokens, session_seed


def fit_request(request: CompletionRequest, config: Any) -> CompletionRequest:
    """Return the request with no more tokens to sample than positions are left: it ends with "length".

    Raises:
        InfrastructureError: a prompt that the model cannot read, which would end the step of all rows: empty,
            longer than its positions, or with an id that it does not have.
    """
    ids, longest = request.prompt_ids, own_pass.count_positions(config)
    if not ids:
        raise InfrastructureError(f"prompt of {request.policy} is empty")
    if len(ids) >= longest:
        raise InfrastructureError(f"prompt of {len(ids)} tokens: the model reads {longest - 1} at most")
    if min(ids) < 0 or max(ids) >= config.vocab_size:
        raise InfrastructureError(
            f"prompt holds an id that the model does not have (0 to {config.vocab_size - 1})"
        )
    most = min(request.sampling.max_completion_tokens, longest - len(ids))
    return replace(request, sampling=replace(request.sampling, max_completion_tokens=most))


def check_finite(model: Any, adapter: str, version: str) -> None:
    """Raise InfrastructureError where a weight of the adapter is not finite."""
    for name, parameter in model.named_parameters():
        if "lora_" in name and f".{adapter}." in name and not bool(torch.isfinite(parameter).all()):
            raise InfrastructureError(f"adapter of {version} holds numbers that are not finite: {name}")


logger = logging.getLogger(__name__)
MAX_FORCED_TOKENS = 96  # a longer continuation is prefilled afresh
QUIET_YIELDS = 12  # event-loop turns without a new request before a step is taken


class TransformersEngine:
    """Engine over in-process models; several policies, each with its own weights or adapter."""

    def __init__(
        self,
        *,
        end_id: int | None,
        seed: int = 0,
        max_rows: int = 512,
        fixed_shapes: bool | None = None,
    ) -> None:
        """`end_id` None makes every completion exactly max_completion_tokens long.

        `max_rows`: transcripts side by side of one policy; with more open ones calls wait until some end.
        `fixed_shapes`: decode in a few shapes, recorded as CUDA graphs on a GPU; None: on a GPU alone.
        """
        self._fixed_shapes = fixed_shapes
        self.end_id = end_id
        self.seed = seed
        self.max_rows = max_rows
        self._filler_id = 0 if end_id is None else end_id  # fed to rows that wait; its output is dropped
        self._lanes: list[Lane] = []  # one per model; where adapters cannot share a pass, one per policy
        self._lane_of: dict[str, Lane] = {}
        self._open: dict[str, list[Row]] = {}  # rows of each session not yet given back
        self._driver: asyncio.Task[None] | None = None
        self._arrivals = 0

    def set_policy(self, policy: str, model: Any, *, version: str, adapter: str | None = None) -> None:
        """Serve `policy` from `model` (a causal LM); replaces an earlier one, whose cache is dropped.

        A PEFT model may serve several policies; `adapter` None takes the policy's own (see adapter_names).

        Raises:
            InfrastructureError: an adapter that holds numbers that are not finite.
            RuntimeError: transcripts of the policy are in flight.
        """
        before = self._lane_of.get(policy)
        if before is not None and before.has_calls_of(policy):
            raise RuntimeError(f"policy {policy!r} has calls in flight")
        use_grouped_attention(model)
        adapter = adapter or adapter_of(model, policy)
        by_whole_texts = not self._is_right_for(model)
        is_stacked = adapter is not None and not by_whole_texts and can_stack(model)
        if is_stacked:
            check_finite(model, str(adapter), version)
        if before is not None:
            before.forget(policy)
        lane = None
        if adapter is None or is_stacked:  # else its rows cannot be computed with another policy's
            lane = next(
                (
                    lane
                    for lane in self._lanes
                    if lane.model is model
                    and lane.is_stacked == is_stacked
                    and (lane.policies or lane is before)
                ),
                None,
            )
        if lane is None:
            is_cuda = next(model.parameters()).is_cuda
            is_fixed = is_cuda if self._fixed_shapes is None else self._fixed_shapes
            window = KVWindow(is_fixed=is_fixed and not by_whole_texts)
            lane = Lane(model=model, is_stacked=is_stacked, window=window, by_whole_texts=by_whole_texts)
            if before is not None and not before.policies:  # the new one stands where the old one stood
                self._lanes[self._lanes.index(before)] = lane
            else:
                self._lanes.append(lane)
        lane.policies[policy] = Policy(name=policy, adapter=adapter, version=version)
        lane.is_stale = True
        self._lane_of[policy] = lane
        self._lanes = [lane for lane in self._lanes if lane.policies]

    def _is_right_for(self, model: Any) -> bool:
        """Return whether the batched steps sample from the model itself, by a short text of its own."""
        key = own_pass.config_key(model)
        if key not in own_pass.known:
            own_pass.known[key] = not own_pass.has_partial_attention(model) and own_pass.equals(
                model, self._play_probe
            )
            if not own_pass.known[key]:
                logger.warning(
                    "%s is sampled by its own pass over each whole text, without a cache: slow, and right",
                    model.config.model_type,
                )
        return own_pass.known[key]

    def _play_probe(self, model: Any, texts: Sequence[Sequence[int]]) -> list[tuple[list[int], list[float]]]:
        """Continue texts by the batched steps; of each the sampled tokens and their log-probabilities."""
        policy = Policy(name="probe", adapter=None, version="probe")
        lane = Lane(model=model, policies={"probe": policy})
        sampling = Sampling(max_completion_tokens=own_pass.SAMPLED)
        rows = [
            Row(
                policy=policy,
                session=str(number),
                stream=number,
                cached=list(text[:-1]),
                forced=deque(text[-1:]),
                request=CompletionRequest(
                    policy="probe", session=str(number), prompt_ids=tuple(text), sampling=sampling
                ),
            )
            for number, text in enumerate(texts)
        ]
        prefill(lane, list(rows), 0)
        while any(row.request for row in lane.rows):
            self._decode(lane)
        return [(row.sampled, row.logprobs) for row in rows]

    async def complete(self, request: CompletionRequest) -> Completion:
        lane = self._lane_of.get(request.policy)
        if lane is None:
            raise InfrastructureError(
                f"engine serves no policy {request.policy!r} (has: {sorted(self._lane_of)})"
            )
        request = fit_request(request, lane.model.config)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Completion] = loop.create_future()
        lane.queue.append((request, future))
        lane.pending.add(future)
        future.add_done_callback(lane.pending.discard)
        self._arrivals += 1
        if self._driver is None or self._driver.done():
            # in an empty context: the caller's holds the caller's graph, and with it this engine, in a cycle
            self._driver = loop.create_task(self._drive(), context=Context())
        return await future

    def end_session(self, session: str) -> None:
        for row in self._open.pop(session, ()):
            row.ended = True

    def rest(self) -> None:
        """Give large windows' memory back to the device: a learner comes next; nothing may be in flight."""
        for lane in self._lanes:
            lane.rest()

    @property
    def is_busy(self) -> bool:
        """Whether there are calls that are neither answered nor given up."""
        return any(lane.is_busy for lane in self._lanes)

    async def _drive(self) -> None:
        """Step every lane that has calls until none has; models are in evaluation mode meanwhile."""
        seen: set[int] = set()
        in_training: list[Any] = []
        try:
            while True:
                await self._wait_until_quiet()
                busy = [lane for lane in self._lanes if lane.is_busy]
                if not busy:
                    return
                for lane in busy:
                    if id(lane) not in seen:
                        seen.add(id(lane))
                        if lane.model.training:
                            in_training.append(lane.model)
                        lane.model.eval()
                    self._step_lane(lane)
        except Exception as error:  # a bug: whoever waits must hear of it, or would wait for ever
            for lane in self._lanes:
                lane.fail(error)
        finally:
            for model in in_training:
                model.train()

    async def _wait_until_quiet(self) -> None:
        """Let the agents that just got an answer hand in their next call, so that calls batch."""
        quiet = 0
        while quiet < QUIET_YIELDS:
            before = self._arrivals
            await asyncio.sleep(0)
            quiet = quiet + 1 if self._arrivals == before else 0

    def _step_lane(self, lane: Lane) -> None:
        lane.bring_up_to_date()
        for policy in lane.policies.values():
            if policy.adapter is not None and not lane.is_stacked:
                lane.model.set_adapter(policy.adapter)
        try:
            with on_device(next(lane.model.parameters()).device), torch.no_grad():
                lane.drop_cancelled()
                lane.drop_ended()
                self._admit(lane)
                if any(row.request for row in lane.rows):
                    self._decode(lane)
        except (torch.OutOfMemoryError, MemoryError) as error:  # a stage ends by it: others would meet it too
            lane.fail(error)
        except (RuntimeError, IndexError) as error:  # a bad kernel
            lane.fail(InfrastructureError(f"engine step failed: {error}"))

    def _admit(self, lane: Lane) -> None:
        """Move queued calls onto rows: continue an open transcript, or prefill a new one."""
        if not lane.queue:
            return
        places = {(row.policy.name, row.session): index for index, row in enumerate(lane.rows)}
        fresh: list[Row] = []
        stale: set[int] = set()
        waiting: list[Call] = []
        for request, future in lane.queue:
            index = places.get((request.policy, request.session))
            prompt = list(request.prompt_ids)
            if index is not None:
                row = lane.rows[index]
                new = prompt[len(row.cached) :]
                fits = 0 < len(new) <= MAX_FORCED_TOKENS and not row.is_spoilt
                if fits and prompt[: len(row.cached)] == row.cached:
                    if row.ended:  # the session was given back, and begins again where it was
                        self._open.setdefault(row.session, []).append(row)
                    row.resume(request, future, new)
                    continue
                stale.add(index)
            if len(lane.rows) - len(stale) + len(fresh) >= self.max_rows * len(lane.policies):
                waiting.append((request, future))
                continue
            row = Row(
                policy=lane.policies[request.policy],
                session=request.session,
                stream=session_seed(self.seed, request.session),
                cached=prompt,
                request=request,
                future=future,
            )
            self._open.setdefault(request.session, []).append(row)
            fresh.append(row)
        lane.queue = waiting
        if stale:
            lane.keep([i for i in range(len(lane.rows)) if i not in stale])
        for row in fresh:  # all but the last token, which the next step feeds
            row.forced = deque(row.cached[-1:])
            row.cached = row.cached[:-1]
        if lane.by_whole_texts:
            lane.rows.extend(fresh)
        else:
            prefill(lane, fresh, self._filler_id)

    def _decode(self, lane: Lane) -> None:
        """Feed every active row a given token if it has one, else the one it sampled last; then sample.

        Rows that wait are left out where policies share the lane.
        """
        if lane.by_whole_texts:
            for row in lane.rows:
                if row.request:
                    row.cached += row.forced or row.sampled[-1:]
                    row.forced.clear()
                    self._give([row], self._pick([row], own_pass.last_logits(lane.model, row.cached)))
            return
        lane.window.squeeze()
        rows = lane.rows
        if len(lane.policies) > 1:
            active = [i for i, row in enumerate(rows) if row.request]
            lane.bring_to_front(active)
            rows = rows[: len(active)]
        starts = [len(row.cached) for row in rows]
        fed = [row.request is not None for row in rows]
        tokens = [row.next_input() if row.request else self._filler_id for row in rows]
        if lane.window.is_fixed:
            self._replay(lane, rows, tokens, starts, fed)
        else:
            self._take_step(lane, rows, tokens, starts, fed)

    def _replay(
        self, lane: Lane, rows: list[Row], tokens: list[int], starts: list[int], fed: list[bool]
    ) -> None:
        """Feed one token a row by a recorded step."""
        if lane.steps is None:
            lane.steps = GraphStep(lane.model, lane.window, lane.route)
        found = lane.steps.run(
            tokens=tokens,
            positions=starts,
            fed=fed,
            places=lane.places(rows),
            streams=[row.stream for row in rows],
            lengths=[len(row.cached) for row in rows],
            temperatures=[row.temperature for row in rows],
        )
        drawn = [(row, one) for row, *one in zip(rows, *found, strict=True) if row.samples]
        self._give([row for row, _ in drawn], [(int(token), logprob) for _, (token, logprob) in drawn])

    def _take_step(
        self, lane: Lane, rows: list[Row], tokens: list[int], starts: list[int], fed: list[bool]
    ) -> None:
        """Feed one token a row; sample for the rows that were given nothing more."""
        window, device = lane.window, lane.window.valid.device
        columns = window.count_seen()
        window.reserve(len(rows), columns)
        column = torch.tensor([window.column], device=device)
        mask = window.valid[: len(rows), :columns].index_fill(1, column, True)
        with lane.route(torch.tensor(lane.places(rows), device=device)[:, None]):
            output = lane.model(
                input_ids=torch.tensor(tokens, device=device)[:, None],
                attention_mask=mask[:, None, None, :],
                position_ids=torch.tensor(starts, device=device)[:, None],
                past_key_values=window.view(len(rows), columns, column),
                use_cache=True,
            )
        window.valid[: len(rows), window.column] = torch.tensor(fed, device=device)
        window.column += 1
        picking = [i for i, row in enumerate(rows) if row.samples]
        if picking:
            chosen = [rows[i] for i in picking]
            self._give(chosen, self._pick(chosen, output.logits[picking, -1]))

    def _pick(self, rows: Sequence[Row], logits: Tensor) -> list[tuple[int, float]]:
        """Sample a token for each row by its logits (rows, vocabulary)."""
        device = logits.device
        temperatures = torch.tensor([row.temperature for row in rows], device=device)
        streams = torch.tensor([row.stream for row in rows], device=device)
        positions = torch.tensor([len(row.cached) for row in rows], device=device)
        ids, logprobs = sample_tokens(logits, temperatures, streams, positions)
        return list(zip(ids.tolist(), logprobs.tolist(), strict=True))

    def _give(self, rows: Sequence[Row], drawn: Sequence[tuple[int, float]]) -> None:
        """Hand rows what was sampled for them."""
        for row, (token, logprob) in zip(rows, drawn, strict=True):
            if math.isfinite(logprob):
                row.take(token, logprob, self.end_id)
            else:
                row.fail(
                    InfrastructureError(f"{row.policy.version} gave a log-probability that is not finite")
                )

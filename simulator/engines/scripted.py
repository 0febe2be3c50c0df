"""Engines without a model: policies that are Python functions of the transcript, and recorded turns."""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence

from roles.errors import unknown
from simulator.chat import Chat
from simulator.engines.base import Completion, CompletionRequest, Engine
from simulator.records import Turn

ScriptedPolicy = Callable[[str], str]  # transcript so far -> the turn's text
SeededPolicy = Callable[[str, random.Random], str]  # the same, with a source of chance of its own


class ScriptedEngine:
    """Decodes the prompt, asks a Python policy for the text, encodes it; every logprob is 0.0.

    `seeded` policies get a random source that depends on `seed`, session and turn only, so that results
    are the same in any order of play. A text longer than the token limit is cut, finish reason "length",
    unless `has_limit` is False: among models whose limit is counted in other tokens.
    """

    def __init__(
        self,
        chat: Chat,
        policies: Mapping[str, ScriptedPolicy] | None = None,
        *,
        seeded: Mapping[str, SeededPolicy] | None = None,
        seed: int = 0,
        has_limit: bool = True,
    ) -> None:
        self._chat, self._seed, self._has_limit = chat, seed, has_limit
        self._policies, self._seeded = dict(policies or {}), dict(seeded or {})

    async def complete(self, request: CompletionRequest) -> Completion:
        """See Engine.complete.

        Raises:
            UserError: no policy of that name.
        """
        await asyncio.sleep(0)  # as an engine would, let the other requests come in
        transcript, policy = self._chat.decode(request.prompt_ids), request.policy
        if policy in self._policies:
            text = self._policies[policy](transcript)
        elif policy in self._seeded:
            rng = random.Random(f"{self._seed}/{request.session}/{len(request.prompt_ids)}")
            text = self._seeded[policy](transcript, rng)
        else:
            raise unknown("policy", policy, [*self._policies, *self._seeded])
        ids = self._chat.encode(text)
        if self._chat.end_id in ids:
            ids = ids[: ids.index(self._chat.end_id)]
        limit = request.sampling.max_completion_tokens
        fits = len(ids) < limit or not self._has_limit
        ids = (*ids, self._chat.end_id) if fits else ids[:limit]
        return Completion(
            token_ids=ids,
            logprobs=(0.0,) * len(ids),
            finish_reason="stop" if fits else "length",
            policy_version=f"{policy}@0",
        )

    def end_session(self, session: str) -> None:
        """Do nothing: no state is kept between turns."""


class ReplayEngine:
    """Answers from `turns` until `go_live`, then from `engine`.

    Replayed ids are the recorded ones, never sampled or tokenised again; a prompt that is not the
    recorded one is refused. The underlying engine first sees the session at its first live request.
    """

    def __init__(self, engine: Engine, turns: Sequence[Turn]) -> None:
        self._engine = engine
        self._recorded = iter(turns)
        self._expected: tuple[int, ...] = ()
        self._is_live = False

    def go_live(self) -> None:
        """Let the underlying engine answer from now on; recorded turns that are left are forgotten."""
        self._is_live = True

    async def complete(self, request: CompletionRequest) -> Completion:
        if self._is_live:
            return await self._engine.complete(request)
        turn = next(self._recorded, None)
        if turn is None:
            raise ValueError(f"session {request.session!r} asks for more turns than were recorded")
        if request.prompt_ids != self._expected + turn.context_ids:
            raise ValueError(f"session {request.session!r} is not the recorded transcript")
        self._expected = request.prompt_ids + turn.completion_ids
        return Completion(
            token_ids=turn.completion_ids,
            logprobs=turn.logprobs,
            finish_reason=turn.finish_reason,
            policy_version=turn.policy_version,
        )

    def end_session(self, session: str) -> None:
        self._engine.end_session(session)

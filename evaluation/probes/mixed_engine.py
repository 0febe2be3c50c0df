"""Serves one episode from several engines, so that roles of different stages, seeds or scripts play in it."""

from collections.abc import Mapping
from dataclasses import replace

from roles.errors import unknown
from simulator.chat import Chat
from simulator.engines.base import Completion, CompletionRequest, Engine


class MixedEngine:
    """Policy "marl:cto" is policy "cto" of the engine under the label "marl"."""

    def __init__(self, engines: Mapping[str, Engine]) -> None:
        self._engines = dict(engines)

    async def complete(self, request: CompletionRequest) -> Completion:
        """See Engine.complete.

        Raises:
            UserError: no engine of that label.
        """
        label, _, policy = request.policy.partition(":")
        if label not in self._engines:
            raise unknown("team of policy", request.policy, list(self._engines))
        return await self._engines[label].complete(replace(request, policy=policy))

    def end_session(self, session: str) -> None:
        """Every engine gives the session back."""
        for engine in self._engines.values():
            engine.end_session(session)


class TranslatedEngine:
    """An engine of another tokenizer: prompts and completions pass as text. Never for training.

    Both chats must render the same template and encode its special tokens from text, as `HFChat` does.
    """

    def __init__(self, engine: Engine, *, inner: Chat, outer: Chat) -> None:
        self._engine, self._inner, self._outer = engine, inner, outer

    async def complete(self, request: CompletionRequest) -> Completion:
        """See Engine.complete; logprobs are 0.0, since the tokens are others."""
        prompt = self._inner.encode(self._outer.decode(request.prompt_ids))
        done = await self._engine.complete(replace(request, prompt_ids=prompt))
        ids = self._outer.encode(self._inner.decode(done.token_ids))
        if done.finish_reason == "stop":
            ids = (*ids, self._outer.end_id)
        return replace(done, token_ids=ids, logprobs=(0.0,) * len(ids))

    def end_session(self, session: str) -> None:
        """The inner engine gives it back."""
        self._engine.end_session(session)

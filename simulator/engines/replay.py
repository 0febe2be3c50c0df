"""An engine that first replays recorded turns, so that a new transcript can continue an old one."""

from collections.abc import Sequence

from simulator.engines.base import Completion, CompletionRequest, Engine
from simulator.records import Turn


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

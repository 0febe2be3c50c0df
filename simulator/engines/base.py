"""The engine protocol: token ids in; sampled ids, their logprobs, finish reason and policy version out."""

from dataclasses import dataclass
from typing import Any, Protocol

from simulator.records import FinishReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Settings of sampling. temperature 0 is greedy (its logprobs are those of temperature 1)."""

    temperature: float = 1.0
    max_completion_tokens: int = 48  # per turn; a longer one ends with finish reason "length"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionRequest:
    """One call of one role.

    `session` names the transcript that `prompt_ids` extends (append-only), so that an engine may keep
    its key-value cache between the turns of one agent. Two live transcripts never share a session.
    """

    policy: str  # which weights: "cto"
    session: str
    prompt_ids: tuple[int, ...]  # the whole transcript so far
    sampling: Sampling

    def find_finish(self, token_ids: tuple[int, ...], end_id: int | None) -> FinishReason | None:
        """Return why these sampled ids end where they do; None where the context was full."""
        if end_id is not None and token_ids[-1:] == (end_id,):
            return "stop"
        return "length" if len(token_ids) == self.sampling.max_completion_tokens else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A sampled completion; `token_ids` include the end-of-turn token when finish_reason is "stop"."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]  # of each sampled id under the distribution it was sampled from
    finish_reason: FinishReason
    policy_version: str  # "cto@17"


class Engine(Protocol):
    """Anything that completes token prompts."""

    async def complete(self, request: CompletionRequest) -> Completion:
        """Sample one completion.

        Raises:
            InfrastructureError: the engine failed; never a policy's fault.
        """

    def end_session(self, session: str) -> None:
        """Note that the transcript is finished: its cache may be dropped. Unknown sessions are ignored."""


class PolicyEngine(Engine, Protocol):
    """An engine whose policies' weights can be replaced while it runs."""

    def set_policy(self, policy: str, model: Any, *, version: str, adapter: str | None = None) -> None:
        """Serve `policy` by `model` from now on; a PEFT model by its `adapter` (None: the policy's own).

        Raises:
            InfrastructureError: the engine does not take the weights.
            RuntimeError: calls of the policy are in flight, and they cannot end on the old weights.
        """

"""Records of play in stages: Turn -> Trajectory -> Episode; each is complete when it is made."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

FinishReason = Literal["stop", "length"]
EndReason = Literal["answer", "turn_tokens", "total_tokens", "turns", "tool_calls", "failed_calls"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One prompt and one completion, as exact token ids.

    Example: Turn(context_ids=(5, 9, 2), completion_ids=(41, 3), logprobs=(-0.1, -0.0),
                  finish_reason="stop", text="accept", policy_version="cto@0")
    """

    context_ids: tuple[int, ...]  # tokens new to the transcript before this completion; never trained on
    completion_ids: tuple[int, ...]  # sampled by the role's policy
    logprobs: tuple[float, ...]  # of completion_ids, as sampled
    finish_reason: FinishReason
    text: str  # completion_ids decoded, end-of-turn token left out
    policy_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """One role's turns in one episode; tool observations stand in the next turn's context_ids."""

    role: str
    session: str
    turns: tuple[Turn, ...]
    num_tool_calls: int  # well-formed or not
    num_valid_tool_calls: int
    ended_by: EndReason  # "answer": by the role itself; else the limit that cut its last work off
    final_text: str  # text of the last turn; "" if it ended inside a tool call

    @property
    def truncated(self) -> bool:
        """Whether a limit ended it, not the role."""
        return self.ended_by != "answer"

    @property
    def num_own(self) -> int:
        """Tokens that the policy sampled."""
        return sum(len(turn.completion_ids) for turn in self.turns)

    def count_turns_to(self, text: str, *, after: int = 0) -> int:
        """Turns up to the first after `after` that says `text`, counted with it; all where none does."""
        for number, turn in enumerate(self.turns[after:], start=after + 1):
            if turn.text == text:
                return number
        return len(self.turns)

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The whole transcript: contexts and completions in order."""
        return tuple(token for turn in self.turns for token in (*turn.context_ids, *turn.completion_ids))

    @property
    def loss_mask(self) -> tuple[int, ...]:
        """1 on tokens that the policy sampled, 0 on prompt, tool and peer tokens."""
        return tuple(
            bit
            for turn in self.turns
            for bit in (*[0] * len(turn.context_ids), *[1] * len(turn.completion_ids))
        )

    @property
    def sampling_logprobs(self) -> tuple[float, ...]:
        """Aligned with token_ids; 0.0 where loss_mask is 0."""
        return tuple(
            value for turn in self.turns for value in (*[0.0] * len(turn.context_ids), *turn.logprobs)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """ReconcileGPT's question to one seat and the seat's reply, as they wrote them.

    Example: Question(ask='{"ask": {"seat": "cto", "option": "A", "cost_at_most": 15}}',
                      reply='{"offer": null}')
    """

    ask: str
    reply: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """The whole team on one scenario, as played (unscored)."""

    scenario_key: str
    index_in_group: int
    trajectories: Mapping[str, Trajectory]  # by role; a role with two turns in the episode has one trajectory
    reports: Mapping[str, str]  # specialist -> final text of its report, as written
    decision: str  # ReconcileGPT's final text
    votes: Mapping[str, str]  # specialist -> text of its vote
    asked: tuple[Question, ...] = ()  # in order, before the decision
    error: str | None = None  # infrastructure fault: the episode's group is left out of training

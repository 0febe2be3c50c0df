"""Training rows: one per trajectory, its sampled ids as they are, with advantages.

An advantage belongs to a row, or to single tokens of it where turns earned different ones (a vote, the plan
after a re-plan, a value head).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from simulator.records import Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRow:
    """One trajectory as the learner sees it.

    Example: TrainingRow(role="cto", token_ids=(3, 8, 41, 1), loss_mask=(0, 0, 1, 1),
                         sampling_logprobs=(0.0, 0.0, -0.2, -0.1), advantage=0.31)
    """

    role: str
    token_ids: tuple[int, ...]
    loss_mask: tuple[int, ...]  # 1 on tokens that this role sampled
    sampling_logprobs: tuple[float, ...]  # aligned; 0.0 where the mask is 0
    advantage: float  # one per row, for all its own tokens
    token_advantages: tuple[float, ...] | None = None  # aligned with token_ids; None: `advantage` for all

    @property
    def num_own(self) -> int:
        """Tokens that this role sampled."""
        return sum(self.loss_mask)

    @property
    def num_prompt(self) -> int:
        """Tokens before the first own one."""
        return self.loss_mask.index(1) if 1 in self.loss_mask else len(self.loss_mask)

    @property
    def has_signal(self) -> bool:
        """Whether any own token has an advantage."""
        return any(self.own_advantages())

    def own_advantages(self) -> list[float]:
        """One advantage per own token, in order."""
        if self.token_advantages is None:
            return [self.advantage] * self.num_own
        return [a for a, bit in zip(self.token_advantages, self.loss_mask, strict=True) if bit]

    def own_logprobs(self) -> list[float]:
        """One sampling logprob per own token, in order."""
        return [p for p, bit in zip(self.sampling_logprobs, self.loss_mask, strict=True) if bit]

    def calls(self) -> list[int]:
        """Of each own token the number of the call (turn) that sampled it, counted from 0."""
        numbers, call, last = [], -1, 0
        for bit in self.loss_mask:
            call += bit and not last
            if bit:
                numbers.append(call)
            last = bit
        return numbers


def make_plain_row(ids: Sequence[int], own: Sequence[int], role: str = "") -> TrainingRow:
    """A text to compute log-probabilities of: its token ids and a 1 for each own one."""
    blank = (0.0,) * len(ids)
    return TrainingRow(
        role=role, token_ids=tuple(ids), loss_mask=tuple(own), sampling_logprobs=blank, advantage=0.0
    )


def make_row(trajectory: Trajectory, advantage: float) -> TrainingRow:
    """The sampled ids as they are, one advantage for all own tokens of the trajectory."""
    return TrainingRow(
        role=trajectory.role,
        token_ids=trajectory.token_ids,
        loss_mask=trajectory.loss_mask,
        sampling_logprobs=trajectory.sampling_logprobs,
        advantage=advantage,
    )


def make_tail_row(trajectory: Trajectory, advantage: float, *, first_turn: int) -> TrainingRow:
    """A row that trains the turns from `first_turn` on; the earlier ones are given to it, as a prompt is.

    For votes on one set of reports: the reports are the same in all of them and have a row of their own.
    """
    row = make_row(trajectory, advantage)
    start = sum(len(turn.context_ids) + len(turn.completion_ids) for turn in trajectory.turns[:first_turn])
    return replace(
        row,
        loss_mask=(0,) * start + row.loss_mask[start:],
        sampling_logprobs=(0.0,) * start + row.sampling_logprobs[start:],
    )


def spread_over_plans(
    row: TrainingRow, plan_of_call: Sequence[int], advantages: Sequence[float]
) -> TrainingRow:
    """The row with each call's tokens under the advantage of the plan that the call worked on.

    Args:
        plan_of_call: for every call of the row the plan's number.
        advantages: of each plan, as `share_between_plans` makes them.

    Raises:
        ValueError: not one plan per call.
    """
    if not row.num_own or len(plan_of_call) != row.calls()[-1] + 1:
        raise ValueError(f"{len(plan_of_call)} plans named for the calls of a row of {row.role}")
    own = iter(advantages[plan_of_call[call]] for call in row.calls())
    return replace(row, token_advantages=tuple(next(own) if bit else 0.0 for bit in row.loss_mask))


def share_between_plans(advantage: float, values: Sequence[float]) -> list[float]:
    """One advantage per plan of an episode: the episode's, times the plan's share, times the number of plans.

    `values` are what each plan was worth once executed, in order. A plan's share is how far it moved the
    value (the first one from 0) as a part of all that was moved; equal shares where nothing moved. So the
    mean over plans is the episode's advantage, a plan that changed nothing gets none of it, and an episode
    of one plan keeps it exactly.

    Raises:
        ValueError: no plan.
    """
    if not values:
        raise ValueError("an episode without a plan has nothing to share")
    if len(values) == 1:
        return [advantage]
    moves = [abs(values[0]), *(abs(after - before) for before, after in pairwise(values))]
    total = sum(moves)
    if total == 0:
        return [advantage] * len(values)
    return [advantage * len(values) * move / total for move in moves]

"""Training rows, one per trajectory, and rows as tensors: side by side with padding, or end to end.

A row has the sampled ids as they are. An advantage belongs to a row, or to single tokens of it where turns
earned different ones (a vote, the plan after a re-plan, a value head).

End to end (`shared_prompt`) the prompt of a group of rows is computed once: its tokens stand first, each
row's own part after it attends to them and to itself. A long beginning that several prompts share (a role's
mandate) is computed once for all of them in the same way. Gradients are those of separate rows: they flow
back to the same keys and values from every part. Each role's tokens stand in one stretch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from simulator.records import Trajectory
from training.learner.row_attention import RowLayout, Segment


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


MIN_TRUNK = 128  # tokens that prompts of several groups must have in common to share them
Places = NDArray[np.int64]
LayoutName = Literal["padded", "shared_prompt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBatch:
    """Some rows, ready for one forward pass. Own tokens are in row order everywhere."""

    token_ids: Int[Tensor, "lines width"]
    attention: Int[Tensor, "lines width"] | None  # 1 on tokens, 0 on padding; None where nothing is padded
    position_ids: Int[Tensor, "lines width"] | None  # None: counted from the left
    layout: RowLayout | None  # who attends to whom where rows stand end to end
    predict_at: Int[Tensor, " own"]  # flat place of the token before each own token
    targets: Int[Tensor, " own"]  # the own tokens
    sampling_logprobs: Float[Tensor, " own"]
    advantages: Float[Tensor, " own"]
    row_of: Int[Tensor, " own"]  # number of its row in this batch
    call_of: Int[Tensor, " own"]  # number of its call in this batch, over all rows
    num_calls: int
    row_sizes: Int[Tensor, " rows"]  # own tokens of each row
    rows: tuple[TrainingRow, ...]
    role_tokens: dict[str, tuple[int, int]]  # role -> its stretch of every line
    role_own: dict[str, slice]  # role -> its stretch of the own tokens


def make_batches(
    rows: Sequence[TrainingRow], *, layout: LayoutName, max_tokens: int, device: torch.device | str = "cpu"
) -> Iterator[RowBatch]:
    """All rows in batches of at most `max_tokens` computed tokens (or one row), in an order of their own."""
    if layout == "padded":
        for role in dict.fromkeys(row.role for row in rows):
            for batch in micro_batches([row for row in rows if row.role == role], max_tokens):
                yield pad_rows(batch, device)
        return
    for pieces in _fill(_group(rows), max_tokens):
        yield join_rows(pieces, device)


def micro_batches(rows: Sequence[TrainingRow], max_tokens: int) -> Iterator[list[TrainingRow]]:
    """Rows by length, cut so that a padded batch holds at most `max_tokens` (or one row)."""
    batch: list[TrainingRow] = []
    for row in sorted(rows, key=lambda row: len(row.token_ids)):
        if batch and (len(batch) + 1) * len(row.token_ids) > max_tokens:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def pad_rows(rows: Sequence[TrainingRow], device: torch.device | str = "cpu") -> RowBatch:
    """Rows of one role side by side, padded on the right."""
    width = max(len(row.token_ids) for row in rows)
    token_ids = torch.zeros(len(rows), width, dtype=torch.long)
    attention = torch.zeros(len(rows), width, dtype=torch.long)
    predict_at: list[Places] = []
    for i, row in enumerate(rows):
        length = len(row.token_ids)
        token_ids[i, :length] = torch.tensor(row.token_ids)
        attention[i, :length] = 1
        predict_at.append(i * width + _own_places(row) - 1)
    role_tokens = {rows[0].role: (0, width)}
    return _finish(rows, token_ids, attention, None, None, predict_at, role_tokens, device)


def idle_batch(device: torch.device | str) -> RowBatch:
    """A row that changes nothing, for a pass of a rank that has none left while others do."""
    return pad_rows([make_plain_row((0, 0), (0, 1))], device)


def join_rows(groups: Sequence[Sequence[TrainingRow]], device: torch.device | str = "cpu") -> RowBatch:
    """Rows end to end; a group of two or more rows shares the prompt that all of them begin with.

    Prompts of several groups also share a long beginning: `rows` of the result has groups with a common
    beginning side by side.
    """
    line = _Line()
    role_tokens: dict[str, tuple[int, int]] = {}
    for role, of_role in groupby(groups, key=lambda group: group[0].role):
        if role in role_tokens:
            raise ValueError(f"rows of {role} do not stand together")
        start = len(line.ids)
        line.lay(list(of_role), 0, ())
        role_tokens[role] = (start, len(line.ids))
    token_ids, position_ids = torch.tensor([line.ids]), torch.tensor([line.positions])
    layout = RowLayout.of(line.segments, device)
    return _finish(line.rows, token_ids, None, position_ids, layout, line.predict_at, role_tokens, device)


class _Line:
    """Rows end to end as they are laid: of every stretch of a row's text its place on the line is known."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.positions: list[int] = []
        self.segments: list[Segment] = []
        self.predict_at: list[Places] = []
        self.rows: list[TrainingRow] = []

    def lay(
        self, groups: Sequence[Sequence[TrainingRow]], start: int, seen: tuple[tuple[int, int], ...]
    ) -> None:
        """Lay the groups' texts from token `start` on; what comes before it stands in the segments `seen`."""
        for cluster in _cluster(groups, start):
            first = cluster[0][0]
            if len(cluster) > 1:
                stop = min(_count_common(first, group[0]) for group in cluster[1:])
                self.lay(cluster, stop, (*seen, self._put(first, start, stop, seen)))
                continue
            stop = first.num_prompt if len(cluster[0]) > 1 else start
            inside = (*seen, self._put(first, start, stop, seen)) if stop > start else seen
            for row in cluster[0]:
                is_over = stop == len(row.token_ids)  # nothing was sampled, and it is all prompt
                path = inside if is_over else (*inside, self._put(row, stop, len(row.token_ids), inside))
                places = np.concatenate([np.arange(*span) for span in path])
                self.predict_at.append(places[_own_places(row) - 1])
                self.rows.append(row)

    def _put(
        self, row: TrainingRow, start: int, stop: int, seen: tuple[tuple[int, int], ...]
    ) -> tuple[int, int]:
        place = len(self.ids)
        self.ids += row.token_ids[start:stop]
        self.positions += range(start, stop)
        self.segments.append(Segment(place, len(self.ids), seen))
        return place, len(self.ids)


def _cluster(groups: Sequence[Sequence[TrainingRow]], start: int) -> list[list[Sequence[TrainingRow]]]:
    """Groups whose prompts have MIN_TRUNK tokens or more from `start` on in common, in order."""
    clusters: list[list[Sequence[TrainingRow]]] = []
    for group in groups:
        for cluster in clusters:
            if _count_common(cluster[0][0], group[0]) - start >= MIN_TRUNK:
                cluster.append(group)
                break
        else:
            clusters.append([group])
    return clusters


def _count_common(one: TrainingRow, other: TrainingRow) -> int:
    """Return how many tokens the prompts of two rows begin with alike."""
    first, second = (row.token_ids[: row.num_prompt] for row in (one, other))
    low, high = 0, min(len(first), len(second)) + 1
    while high - low > 1:  # alike up to `low`, not up to `high`
        middle = (low + high) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle
    return low


def _finish(
    rows: Sequence[TrainingRow],
    token_ids: Tensor,
    attention: Tensor | None,
    position_ids: Tensor | None,
    layout: RowLayout | None,
    predict_at: list[Places],
    role_tokens: dict[str, tuple[int, int]],
    device: torch.device | str,
) -> RowBatch:
    own = [_own_places(row) for row in rows]
    sizes = np.array([len(places) for places in own])
    role_own: dict[str, slice] = {}
    end = 0
    for row, size in zip(rows, sizes.tolist(), strict=True):
        start = role_own[row.role].start if row.role in role_own else end
        end += size
        role_own[row.role] = slice(start, end)
    row_of = np.repeat(np.arange(len(rows)), sizes)
    begins = np.concatenate([np.diff(places, prepend=-2) > 1 for places in own])  # of a call each
    advantages = [
        np.full(len(places), row.advantage)
        if row.token_advantages is None
        else np.array(row.token_advantages, dtype=np.float64)[places]
        for row, places in zip(rows, own, strict=True)
    ]

    def give(parts: Sequence[Any], kind: torch.dtype = torch.long) -> Tensor:
        return torch.from_numpy(np.concatenate(parts)).to(device=device, dtype=kind)

    def pick(name: str) -> list[Any]:
        return [np.array(getattr(row, name))[places] for row, places in zip(rows, own, strict=True)]

    return RowBatch(
        token_ids=token_ids.to(device),
        attention=None if attention is None else attention.to(device),
        position_ids=None if position_ids is None else position_ids.to(device),
        layout=layout,
        predict_at=give(predict_at),
        targets=give(pick("token_ids")),
        sampling_logprobs=give(pick("sampling_logprobs"), torch.get_default_dtype()),
        advantages=give(advantages, torch.get_default_dtype()),
        row_of=give([row_of]),
        call_of=give([begins.cumsum() - 1]),
        num_calls=int(begins.sum()),
        row_sizes=give([sizes]),
        rows=tuple(rows),
        role_tokens=role_tokens,
        role_own=role_own,
    )


def _own_places(row: TrainingRow) -> Places:
    return np.flatnonzero(np.array(row.loss_mask))


def _group(rows: Sequence[TrainingRow]) -> list[list[TrainingRow]]:
    """Groups of rows with one role and prompt (or single rows), role by role, in order of appearance."""
    groups: dict[tuple[object, ...], list[TrainingRow]] = {}
    for place, row in enumerate(rows):
        prompt = row.token_ids[: row.num_prompt]
        groups.setdefault((row.role, prompt if len(prompt) > 1 else place), []).append(row)
    roles = list(dict.fromkeys(row.role for row in rows))
    return sorted(groups.values(), key=lambda group: roles.index(group[0].role))


def _fill(groups: Sequence[list[TrainingRow]], max_tokens: int) -> Iterator[list[list[TrainingRow]]]:
    """Cut groups into batches; one that does not fit goes on in the next, its prompt computed again."""
    batch: list[list[TrainingRow]] = []
    used = 0
    for group in groups:
        opened = False
        for row in group:
            shared = row.num_prompt if opened else 0
            if batch and not opened and batch[-1][0].role == row.role:
                common = _count_common(batch[-1][0], row)
                shared = common if common >= MIN_TRUNK else 0
            cost = len(row.token_ids) - shared
            if batch and used + cost > max_tokens:
                yield batch
                batch, used, opened, cost = [], 0, False, len(row.token_ids)
            if opened:
                batch[-1].append(row)
            else:
                batch.append([row])
            opened = True
            used += cost
    if batch:
        yield batch

"""Rows as tensors: side by side with padding, end to end, or end to end with every common prompt once.

`shared_prompt` computes the prompt of a group of rows a single time: its tokens stand first, each row's own
part after it attends to them and to itself. Gradients are those of separate rows, since they flow back to
the same keys and values from every part. End to end, the roles' tokens stand in one stretch each.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from training.learner.row_attention import RowLayout, Segment
from training.learner.rows import TrainingRow

LayoutName = Literal["padded", "packed", "shared_prompt"]


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
    rows: tuple[TrainingRow, ...]
    role_tokens: dict[str, tuple[int, int]]  # role -> its stretch of every line
    role_own: dict[str, slice]  # role -> its stretch of the own tokens
    num_tokens: int  # computed, padding included


def make_batches(
    rows: Sequence[TrainingRow], *, layout: LayoutName, max_tokens: int, device: torch.device | str = "cpu"
) -> Iterator[RowBatch]:
    """All rows in batches of at most `max_tokens` computed tokens (or one row), in an order of their own."""
    if layout == "padded":
        for role in dict.fromkeys(row.role for row in rows):
            for batch in micro_batches([row for row in rows if row.role == role], max_tokens):
                yield pad_rows(batch, device)
        return
    for pieces in _fill(_group(rows, share=layout == "shared_prompt"), max_tokens):
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
    predict_at: list[int] = []
    for i, row in enumerate(rows):
        length = len(row.token_ids)
        token_ids[i, :length] = torch.tensor(row.token_ids)
        attention[i, :length] = 1
        predict_at += [i * width + place - 1 for place in _own_places(row)]
    role_tokens = {rows[0].role: (0, width)}
    return _finish(rows, token_ids, attention, None, None, predict_at, role_tokens, device)


def idle_batch(device: torch.device | str) -> RowBatch:
    """A row that changes nothing, for a pass of a rank that has none left while others do."""
    row = TrainingRow(
        role="", token_ids=(0, 0), loss_mask=(0, 1), sampling_logprobs=(0.0, 0.0), advantage=0.0
    )
    return pad_rows([row], device)


def join_rows(groups: Sequence[Sequence[TrainingRow]], device: torch.device | str = "cpu") -> RowBatch:
    """Rows end to end; a group of two or more rows shares the prompt that all of them begin with."""
    ids: list[int] = []
    positions: list[int] = []
    segments: list[Segment] = []
    predict_at: list[int] = []
    role_tokens: dict[str, tuple[int, int]] = {}
    for group in groups:
        role, group_start = group[0].role, len(ids)
        shared = group[0].num_prompt if len(group) > 1 else 0
        if shared:
            segments.append(Segment(len(ids), len(ids) + shared, 0, 0))
            ids += group[0].token_ids[:shared]
            positions += range(shared)
        for row in group:
            start = len(ids)
            ids += row.token_ids[shared:]
            positions += range(shared, len(row.token_ids))
            segments.append(Segment(start, len(ids), group_start, group_start + shared))
            for place in _own_places(row):
                before = place - 1
                predict_at.append(group_start + before if before < shared else start + before - shared)
        first = role_tokens.get(role, (group_start, group_start))[0]
        if role in role_tokens and role_tokens[role][1] != group_start:
            raise ValueError(f"rows of {role} do not stand together")
        role_tokens[role] = (first, len(ids))
    rows = [row for group in groups for row in group]
    token_ids, position_ids = torch.tensor([ids]), torch.tensor([positions])
    layout = RowLayout.of(segments, device)
    return _finish(rows, token_ids, None, position_ids, layout, predict_at, role_tokens, device)


def _finish(
    rows: Sequence[TrainingRow],
    token_ids: Tensor,
    attention: Tensor | None,
    position_ids: Tensor | None,
    layout: RowLayout | None,
    predict_at: list[int],
    role_tokens: dict[str, tuple[int, int]],
    device: torch.device | str,
) -> RowBatch:
    row_of: list[int] = []
    call_of: list[int] = []
    role_own: dict[str, slice] = {}
    num_calls = 0
    for number, row in enumerate(rows):
        calls = row.calls()
        start = role_own[row.role].start if row.role in role_own else len(row_of)
        row_of += [number] * len(calls)
        call_of += [num_calls + call for call in calls]
        num_calls += calls[-1] + 1 if calls else 0
        role_own[row.role] = slice(start, len(row_of))
    targets = [row.token_ids[place] for row in rows for place in _own_places(row)]
    return RowBatch(
        token_ids=token_ids.to(device),
        attention=None if attention is None else attention.to(device),
        position_ids=None if position_ids is None else position_ids.to(device),
        layout=layout,
        predict_at=torch.tensor(predict_at, device=device),
        targets=torch.tensor(targets, device=device),
        sampling_logprobs=torch.tensor([p for row in rows for p in row.own_logprobs()], device=device),
        advantages=torch.tensor([a for row in rows for a in row.own_advantages()], device=device),
        row_of=torch.tensor(row_of, device=device),
        call_of=torch.tensor(call_of, device=device),
        rows=tuple(rows),
        role_tokens=role_tokens,
        role_own=role_own,
        num_tokens=token_ids.numel(),
    )


def _own_places(row: TrainingRow) -> list[int]:
    return [place for place, bit in enumerate(row.loss_mask) if bit]


def _group(rows: Sequence[TrainingRow], *, share: bool) -> list[list[TrainingRow]]:
    """Groups of rows with one role and prompt (or single rows), role by role, in order of appearance."""
    groups: dict[tuple[object, ...], list[TrainingRow]] = {}
    for place, row in enumerate(rows):
        prompt = row.token_ids[: row.num_prompt]
        groups.setdefault((row.role, prompt) if share and len(prompt) > 1 else (row.role, place), []).append(
            row
        )
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

"""Passes of the embedded engine over prompts of new transcripts, and over blocks of tokens of open ones."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from simulator.engines.embedded.grouped_attention import Block, SharedPart, SharedText, seeing
from simulator.engines.embedded.lanes import Lane, Row, length_buckets

MIN_TRUNK = 64  # tokens that prompts must begin with in common to share them


@contextmanager
def routed(lane: Lane, rows: Sequence[Row], block: Block | None = None) -> Iterator[None]:
    """While this is open, each of these rows passes through its adapter and sees the texts that it shares.

    `block`: their tokens stand end to end.
    """
    device = next(lane.model.parameters()).device
    sharing: dict[SharedText, list[int]] = {}
    for place, row in enumerate(rows):
        if row.shared is not None:
            sharing.setdefault(row.shared, []).append(place)
    parts = [SharedPart(text=text, rows=torch.tensor(its, device=device)) for text, its in sharing.items()]
    places = torch.tensor(lane.places(rows), device=device)[:, None]
    with lane.route(places if block is None else places[block.row].T), seeing(parts, block):
        yield


def prefill(lane: Lane, rows: list[Row], filler_id: int) -> None:
    """Compute the prompts of new rows, and give the rows to the lane."""
    if not lane.is_wide:
        for batch in length_buckets(rows):
            _prefill(lane, batch, filler_id)
        return
    for policy in dict.fromkeys(row.policy.name for row in rows):
        for batch in length_buckets([row for row in rows if row.policy.name == policy]):
            _prefill_shared(lane, batch, filler_id)


def _prefill(lane: Lane, rows: list[Row], filler_id: int) -> None:
    """Compute the prompts of new rows, equal ones of a policy once."""
    firsts, owner = _find_distinct(rows)
    cache = DynamicCache()
    seen = torch.zeros(len(firsts), 0, dtype=torch.bool)
    valid = _extend(lane, firsts, [row.cached for row in firsts], cache, seen, filler_id)
    _append(lane, rows, cache, valid, owner)


def _prefill_shared(lane: Lane, rows: list[Row], filler_id: int) -> None:
    """Compute the prompts of one policy's new rows, what all have in common once, and equal ones once.

    Where the model's attention knows shared texts, rows keep no copies of them in the window.
    """
    firsts, owner = _find_distinct(rows)
    prompts = [list(row.cached) for row in firsts]
    trunk = _find_trunk(lane, rows[0], prompts, filler_id)
    cache, start = DynamicCache(), 0
    if trunk is not None:
        start = len(trunk.tokens)
        if lane.takes_blocks:
            for row in rows:
                row.shared = trunk
        else:
            for number, (keys, values) in enumerate(zip(trunk.keys, trunk.values, strict=True)):
                wide = (len(prompts), -1, -1, -1)
                cache.update(keys.expand(wide), values.expand(wide), number)
    seen = torch.ones(len(prompts), cache.get_seq_length(), dtype=torch.bool)
    valid = _extend(lane, firsts, [prompt[start:] for prompt in prompts], cache, seen, filler_id)
    _append(lane, rows, cache, valid, owner)


def _find_distinct(rows: Sequence[Row]) -> tuple[list[Row], list[int]]:
    """Return the rows of different policies or prompts, and of every row the place of its like among them."""
    firsts: dict[tuple[str, tuple[int, ...]], Row] = {}
    keys = [(row.policy.name, tuple(row.cached)) for row in rows]
    for key, row in zip(keys, rows, strict=True):
        firsts.setdefault(key, row)
    places = {key: place for place, key in enumerate(firsts)}
    return list(firsts.values()), [places[key] for key in keys]


def _append(lane: Lane, rows: list[Row], cache: DynamicCache, valid: Tensor, owner: list[int]) -> None:
    """Give the lane these rows with the computed prompts of `owner`, one of them for each row."""
    if len(valid) < len(rows):
        index = torch.tensor(owner, device=valid.device)
        cache.batch_select_indices(index)
        valid = valid[index]
    lane.window.append_rows(cache, valid)
    lane.rows.extend(rows)


def _find_trunk(lane: Lane, row: Row, prompts: list[list[int]], filler_id: int) -> SharedText | None:
    """Return what a policy's prompts begin with in common, also with earlier ones where that is enough."""
    known = lane.trunks.get(row.policy.name)
    common = count_common([*prompts, known.tokens]) if known else 0
    if known is None or common < MIN_TRUNK:
        common = count_common(prompts) if len(prompts) > 1 else 0
        if common < MIN_TRUNK:
            return None
        cache: Any = DynamicCache()
        _extend(lane, [row], [prompts[0][:common]], cache, torch.zeros(1, 0, dtype=torch.bool), filler_id)
        known = SharedText(
            tokens=tuple(prompts[0][:common]),
            keys=tuple(layer.keys[0] for layer in cache.layers),
            values=tuple(layer.values[0] for layer in cache.layers),
        )
    elif common < len(known.tokens):
        known = SharedText(
            tokens=known.tokens[:common],
            keys=tuple(keys[:, :common] for keys in known.keys),
            values=tuple(values[:, :common] for values in known.values),
        )
    lane.trunks[row.policy.name] = known
    return known


def _extend(
    lane: Lane,
    rows: list[Row],
    texts: list[list[int]],
    cache: DynamicCache,
    seen: Tensor,
    filler_id: int,
) -> Tensor:
    """Compute further tokens of transcripts whose columns so far are in the cache.

    `rows` say which adapters speak and what the texts share with others before these columns; `seen`
    (texts, columns) bool says which columns are a text's own.
    Returns: the same over all columns, the new ones padded on the left.
    """
    width = max(1, *map(len, texts))
    device = next(lane.model.parameters()).device
    ids = torch.full((len(texts), width), filler_id, dtype=torch.long)
    valid = torch.zeros(len(texts), width, dtype=torch.bool)
    for i, text in enumerate(texts):
        if text:
            ids[i, width - len(text) :] = torch.tensor(text)
            valid[i, width - len(text) :] = True
    ids, valid, seen = ids.to(device), valid.to(device), seen.to(device)
    causal = torch.ones(width, width, dtype=torch.bool, device=device).tril()
    mask = (causal & valid[:, None, :]) | torch.eye(width, dtype=torch.bool, device=device)
    mask = torch.cat([seen[:, None, :].expand(-1, width, -1), mask], 2)
    before = torch.tensor([[row.num_shared] for row in rows], device=device) + seen.sum(1, keepdim=True)
    with routed(lane, rows):
        lane.model.get_decoder()(  # without the output head: nothing is sampled here
            input_ids=ids,
            attention_mask=mask[:, None],
            position_ids=(before + valid.cumsum(1) - 1).clamp(min=0),
            past_key_values=cache,
            use_cache=True,
        )
    return torch.cat([seen, valid], 1)


def count_common(prompts: Sequence[Sequence[int]]) -> int:
    """Return how many tokens all prompts begin with alike."""
    first, *others = map(tuple, prompts)
    low, high = 0, min(map(len, prompts)) + 1
    while high - low > 1:  # alike up to `low`, not up to `high`
        middle = (low + high) // 2
        if all(first[low:middle] == other[low:middle] for other in others):
            low = middle
        else:
            high = middle
    return low


MOST_GUESSES = 4  # of a row in one pass
MOST_GIVEN = 8  # tokens of a row that go with others' next ones; more take a pass of their own
MOST_PADDED = 4096  # rows x tokens of the longest one in a pass over observations


def bring_observations(lane: Lane) -> int:
    """Let rows that were given much stand first, as many as a pass may hold; their number."""
    waiting = [i for i, row in enumerate(lane.rows) if row.request and len(row.forced) > MOST_GIVEN]
    waiting.sort(key=lambda i: len(lane.rows[i].forced))
    chosen: list[int] = []
    for i in waiting:
        if chosen and (len(chosen) + 1) * len(lane.rows[i].forced) > MOST_PADDED:
            break
        chosen.append(i)
    lane.bring_to_front(chosen)
    return len(chosen)


def run_block(
    lane: Lane,
    rows: Sequence[Row],
    starts: Sequence[int],
    texts: Sequence[Sequence[int]],
    asked: Sequence[int],
) -> tuple[Tensor, Block]:
    """Compute the next tokens of the lane's first rows; all of them get columns, none counts as kept yet.

    `starts`: tokens of each row before these. `asked`: places among all tokens that logits are wanted of.
    Returns: logits (asked, vocabulary), and where the tokens went.
    """
    window, device = lane.window, lane.window.valid.device
    counts = torch.tensor([len(text) for text in texts], device=device)
    owner = torch.arange(len(rows), device=device).repeat_interleave(counts)
    slot = torch.arange(len(owner), device=device) - (counts.cumsum(0) - counts)[owner]
    block = Block(row=owner, slot=slot, column=window.place(counts)[owner, slot], width=int(counts.max()))
    model: Any = lane.model
    with routed(lane, rows, block):
        output = model(
            input_ids=torch.tensor([token for text in texts for token in text], device=device)[None],
            attention_mask=window.block_mask(len(rows), block),
            position_ids=(torch.tensor(starts, device=device)[owner] + slot)[None],
            past_key_values=window.block_cache(len(rows), block),
            use_cache=True,
            logits_to_keep=torch.tensor(asked, device=device),
        )
    return output.logits[0], block

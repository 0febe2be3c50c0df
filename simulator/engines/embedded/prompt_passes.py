"""Passes of the embedded engine over given tokens: prompts of new transcripts, and observations as blocks."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from simulator.engines.embedded.grouped_attention import SharedPart, SharedText, can_share, seeing
from simulator.engines.embedded.lanes import Lane, Row, length_buckets
from simulator.engines.embedded.static_window import StaticWindow

MIN_TRUNK = 64  # tokens that prompts must begin with in common to share them
MIN_BLOCK = 8  # given tokens that are worth a pass of their own


@contextmanager
def routed(lane: Lane, rows: list[Row]) -> Iterator[None]:
    """While this is open, each of these rows passes through its adapter and sees the texts that it shares."""
    device = next(lane.model.parameters()).device
    sharing: dict[SharedText, list[int]] = {}
    for place, row in enumerate(rows):
        if row.shared is not None:
            sharing.setdefault(row.shared, []).append(place)
    parts = [SharedPart(text=text, rows=torch.tensor(its, device=device)) for text, its in sharing.items()]
    with lane.route(torch.tensor(lane.places(rows), device=device)), seeing(parts):
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
    """Compute the prompts of new rows."""
    cache = DynamicCache()
    seen = torch.zeros(len(rows), 0, dtype=torch.bool)
    valid = _extend(lane, rows, [row.cached for row in rows], cache, seen, filler_id)
    lane.window.append_rows(cache, valid)
    lane.rows.extend(rows)


def _prefill_shared(lane: Lane, rows: list[Row], filler_id: int) -> None:
    """Compute the prompts of one policy's new rows, what all have in common once, and equal ones once.

    Where the model's attention knows shared texts, rows keep no copies of them in the window.
    """
    places: dict[tuple[int, ...], int] = {}
    owner = [places.setdefault(tuple(row.cached), len(places)) for row in rows]
    prompts = [list(prompt) for prompt in places]
    trunk = _find_trunk(lane, rows[0], prompts, filler_id)
    cache, start = DynamicCache(), 0
    if trunk is not None:
        start = len(trunk.tokens)
        if shares_texts(lane):
            for row in rows:
                row.shared = trunk
        else:
            for number, (keys, values) in enumerate(zip(trunk.keys, trunk.values, strict=True)):
                wide = (len(prompts), -1, -1, -1)
                cache.update(keys.expand(wide), values.expand(wide), number)
    seen = torch.ones(len(prompts), cache.get_seq_length(), dtype=torch.bool)
    valid = _extend(
        lane, rows[: len(prompts)], [prompt[start:] for prompt in prompts], cache, seen, filler_id
    )
    index = torch.tensor(owner, device=valid.device)
    cache.batch_select_indices(index)
    lane.window.append_rows(cache, valid[index])
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


def takes_blocks(lane: Lane) -> bool:
    """Return whether given tokens go as one pass; rows of fixed buffers take one a step."""
    return lane.is_wide and not isinstance(lane.window, StaticWindow)


def shares_texts(lane: Lane) -> bool:
    """Return whether what prompts have in common is kept once, beside the window."""
    return takes_blocks(lane) and can_share(lane.model)


def feed_blocks(lane: Lane, filler_id: int) -> None:
    """Feed what rows were given in one pass, but for the last token of each."""
    places = [i for i, row in enumerate(lane.rows) if row.request and len(row.forced) >= MIN_BLOCK]
    if not places or not takes_blocks(lane):
        return
    rows = [lane.rows[i] for i in places]
    given = [[row.forced.popleft() for _ in range(len(row.forced) - 1)] for row in rows]
    cache = lane.window.copy_rows(places)
    valid = _extend(lane, rows, given, cache, lane.window.valid[places][:, : lane.window.column], filler_id)
    lane.window.fill_rows(places, cache, valid[:, lane.window.column :])
    for row, tokens in zip(rows, given, strict=True):
        row.cached += tokens


def count_common(prompts: Sequence[Sequence[int]]) -> int:
    """Return how many tokens all prompts begin with alike."""
    places = zip(*prompts, strict=False)
    most = min(map(len, prompts))
    return next((place for place, tokens in enumerate(places) if len(set(tokens)) > 1), most)

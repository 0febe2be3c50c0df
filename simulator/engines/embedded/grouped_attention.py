"""Attention of models that share key heads, to sample: no copies of keys, on a CPU common prompts once.

Transformers repeats keys and values for every query head where a mask is given; that copy of the whole window
costs ten times the attention itself. Here query heads that share a key head are further queries of it.

What prompts have in common (`SharedText`) is held once, and all rows attend to it in one product.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "emads_grouped"
MOST_SCORES = 1 << 24  # scores that are held at once
MOST_SCORES_ON_GPU = 1 << 28


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SharedText:
    """Keys and values of tokens that several transcripts have at the same place, by layer.

    Each is (key heads, tokens, width).
    """

    tokens: tuple[int, ...]
    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]

    def of_layer(self, module: Any) -> tuple[Tensor, Tensor]:
        """Keys and values of an attention layer."""
        return self.keys[module.layer_idx], self.values[module.layer_idx]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPart:
    """Rows of a batch, by their places, that all see the whole of a shared text."""

    text: SharedText
    rows: Tensor  # (rows,) int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Block:
    """Some tokens of each of several rows, end to end. All tensors are (tokens,) int."""

    row: Tensor
    slot: Tensor  # place among the tokens of its row
    column: Tensor  # of the row's cache that the token is written to
    width: int  # most tokens of a row


_block: ContextVar[Block | None] = ContextVar("how the tokens of the batch are laid", default=None)
_parts: ContextVar[Sequence[SharedPart]] = ContextVar("shared parts of the batch", default=())


@contextmanager
def seeing(parts: Sequence[SharedPart], block: Block | None = None) -> Iterator[None]:
    """While this is open, the rows of a pass also see these texts, which its cache does not hold.

    `block`: how the rows' tokens are laid; None: a row is one of the batch.
    """
    tokens = _parts.set(parts), _block.set(block)
    try:
        yield
    finally:
        _parts.reset(tokens[0])
        _block.reset(tokens[1])


def use_grouped_attention(model: Any) -> None:
    """Let a model attend by `grouped_attention` where it would by SDPA."""
    if model.config._attn_implementation == "sdpa" and _is_known(model):
        model.set_attn_implementation(NAME)


def can_share(model: Any) -> bool:
    """Return whether rows can share texts: a CPU's model that attends by `grouped_attention`.

    Itself or through the learner's attention.
    """
    is_grouped = str(model.config._attn_implementation).startswith("emads_")
    return is_grouped and _is_known(model) and not next(model.parameters()).is_cuda


def _is_known(model: Any) -> bool:
    return hasattr(model.config, "num_key_value_heads")


def grouped_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attention as Transformers calls it: heads before tokens in the query, after them in the result."""
    parts, block = _parts.get(), _block.get()
    if block is not None and attention_mask is not None:
        factor = query.shape[3] ** -0.5 if scaling is None else scaling
        return _attend_block(module, query * factor, key, value, attention_mask, block, parts), None
    rows, heads, tokens, width = query.shape
    key_heads = key.shape[1]
    groups = heads // key_heads
    is_plain = groups == 1 and not parts
    is_decoding = tokens == 1 and not torch.is_grad_enabled()
    if query.is_cuda:
        is_plain |= not is_decoding  # a GPU's kernels for many queries are worth the copy
    if attention_mask is None or is_plain or attention_mask.shape[1] != 1:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **options)
    folded = query.reshape(rows, key_heads, groups * tokens, width)
    mask = attention_mask.repeat(1, 1, groups, 1)
    if parts or is_decoding:
        folded = folded * (width**-0.5 if scaling is None else scaling)
        shared = [(part.rows, *part.text.of_layer(module)) for part in parts]
        found = _attend_in_products(folded, key, value, mask, shared)
    else:
        found = scaled_dot_product_attention(folded, key, value, attn_mask=mask, scale=scaling)
    return found.reshape(rows, heads, tokens, width).transpose(1, 2).contiguous(), None


def _attend_block(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    block: Block,
    parts: Sequence[SharedPart],
) -> Tensor:
    """Attention of a block's tokens to their rows' caches, and to the texts that the rows share.

    `query` is (1, heads, tokens, width), scaled; keys and values are of the rows, `mask` is (rows, 1,
    block.width, columns). Own keys need tokens by rows, padded; a shared text is seen by the tokens as they
    stand. The two softmaxes are then made one. Returns: (1, tokens, heads, width).
    """
    rows, key_heads, columns, width = key.shape
    tokens = query.view(key_heads, -1, *query.shape[2:])  # (key heads, groups, tokens, width)
    tokens = tokens.permute(2, 0, 1, 3)
    groups = tokens.shape[2]  # of (tokens, key heads, groups, width)
    padded = tokens.new_zeros(rows, block.width, key_heads, groups, width)
    padded[block.row, block.slot] = tokens
    padded = padded.permute(0, 2, 3, 1, 4).reshape(rows * key_heads, groups * block.width, width)
    scores = torch.bmm(padded, key.flatten(0, 1).transpose(1, 2))
    scores = scores.view(rows, key_heads, groups, block.width, columns)
    scores.masked_fill_(~mask[:, :, None], -torch.inf)
    top, total, scores = _exponents(scores)
    found = torch.bmm(scores.view(rows * key_heads, -1, columns), value.flatten(0, 1))
    found = found.view(rows, key_heads, groups, block.width, width)
    found, top, total = (one.permute(0, 3, 1, 2, 4)[block.row, block.slot] for one in (found, top, total))
    for part in parts:
        keys, values = part.text.of_layer(module)
        is_whole = len(part.rows) == rows  # all see one text
        places = slice(None) if is_whole else torch.isin(block.row, part.rows).nonzero()[:, 0]
        asking = tokens[places].permute(1, 2, 0, 3)
        theirs = torch.bmm(asking.reshape(key_heads, -1, width), keys.transpose(1, 2))
        their_top, their_total, theirs = _exponents(theirs)
        seen = torch.bmm(theirs, values)
        seen, their_top, their_total = (
            one.view(key_heads, groups, -1, one.shape[-1]).permute(2, 0, 1, 3)
            for one in (seen, their_top, their_total)
        )
        highest = torch.maximum(top[places], their_top)
        ours, other = (top[places] - highest).exp(), (their_top - highest).exp()
        found[places] = found[places] * ours + seen * other
        total[places] = total[places] * ours + their_total * other
        top[places] = highest
    return (found / total).flatten(1, 2)[None]


def _exponents(scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Highest score, sum of exponents, and exponents, of the last dimension; the scores are overwritten."""
    top = scores.amax(-1, keepdim=True)
    scores = scores.sub_(top).exp_()
    return top, scores.sum(-1, keepdim=True), scores


_Shared = tuple[Tensor, Tensor, Tensor]  # rows; keys and values that they share, (key heads, tokens, width)


def _attend_in_products(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, shared: Sequence[_Shared]
) -> Tensor:
    """Attention of each row to the text that it shares and to its own keys, by plain products.

    `query` is (rows, key heads, queries, width), scaled; `mask` is of the own keys. While decoding this is
    several times as fast on a CPU as SDPA's kernel, which is made for many queries.
    """
    rows, heads, queries, _ = query.shape
    own = key.shape[2]
    longest = max((keys.shape[1] for _, keys, _ in shared), default=0)
    most = MOST_SCORES_ON_GPU if query.is_cuda else MOST_SCORES
    step = max(1, most // (heads * queries * (own + longest)))
    if rows > step:
        parts = []
        for start in range(0, rows, step):
            some = slice(start, start + step)
            theirs = [
                (places[(places >= start) & (places < start + step)] - start, keys, values)
                for places, keys, values in shared
            ]
            parts.append(_attend_in_products(query[some], key[some], value[some], mask[some], theirs))
        return torch.cat(parts)
    scores = torch.bmm(query.flatten(0, 1), key.flatten(0, 1).transpose(1, 2)).view(rows, heads, queries, own)
    scores.masked_fill_(~mask, -torch.inf)
    if shared:
        further = [
            torch.bmm(query[places].transpose(0, 1).flatten(1, 2), keys.transpose(1, 2))
            .view(heads, len(places), queries, -1)
            .transpose(0, 1)
            for places, keys, _ in shared  # one product for all of its rows
        ]
        scores = torch.cat([scores, _spread(further, shared, rows)], -1)
    chances = scores.softmax(-1)
    result = torch.bmm(chances[..., :own].flatten(0, 1), value.flatten(0, 1)).view(query.shape)
    for places, keys, values in shared:
        seen = chances[places, :, :, own : own + keys.shape[1]].transpose(0, 1).flatten(1, 2)
        result[places] += torch.bmm(seen, values).view(heads, len(places), queries, -1).transpose(0, 1)
    return result


def _spread(parts: Sequence[Tensor], shared: Sequence[_Shared], rows: int) -> Tensor:
    """Scores of all rows over the longest shared text: what a row does not see is minus infinity."""
    if len(parts) == 1 and len(parts[0]) == rows:  # all rows see one text; parts stand in the rows' order
        return parts[0]
    longest = max(part.shape[-1] for part in parts)
    spread = parts[0].new_full((rows, *parts[0].shape[1:3], longest), -torch.inf)
    for part, (places, _, _) in zip(parts, shared, strict=True):
        spread[places, :, :, : part.shape[-1]] = part
    return spread


AttentionInterface.register(NAME, grouped_attention)
AttentionMaskInterface.register(NAME, sdpa_mask)

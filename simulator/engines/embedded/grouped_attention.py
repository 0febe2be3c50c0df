"""Attention of models that share key heads, to sample on a CPU: no copies of keys, common prompts once.

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


_parts: ContextVar[Sequence[SharedPart]] = ContextVar("shared parts of the batch", default=())


@contextmanager
def seeing(parts: Sequence[SharedPart]) -> Iterator[None]:
    """While this is open, the rows of a pass also see these texts, which its cache does not hold."""
    token = _parts.set(parts)
    try:
        yield
    finally:
        _parts.reset(token)


def use_grouped_attention(model: Any) -> None:
    """Let a model on a CPU that shares key heads attend by `grouped_attention` where it would by SDPA."""
    if model.config._attn_implementation == "sdpa" and _has_groups(model):
        model.set_attn_implementation(NAME)


def can_share(model: Any) -> bool:
    """Return whether the model attends by `grouped_attention`, itself or through the learner's attention."""
    return str(model.config._attn_implementation).startswith("emads_") and _has_groups(model)


def _has_groups(model: Any) -> bool:
    key_heads = getattr(model.config, "num_key_value_heads", None)
    return key_heads not in (None, model.config.num_attention_heads) and not next(model.parameters()).is_cuda


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
    rows, heads, tokens, width = query.shape
    key_heads = key.shape[1]
    groups = heads // key_heads
    if attention_mask is None or query.is_cuda or groups == 1 or attention_mask.shape[1] != 1:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **options)
    folded = query.reshape(rows, key_heads, groups * tokens, width)
    mask = attention_mask.repeat(1, 1, groups, 1)
    parts = _parts.get()
    if parts or (tokens == 1 and not torch.is_grad_enabled()):
        folded = folded * (width**-0.5 if scaling is None else scaling)
        shared = [(part.rows, *part.text.of_layer(module)) for part in parts]
        found = _attend_in_products(folded, key, value, mask, shared)
    else:
        found = scaled_dot_product_attention(folded, key, value, attn_mask=mask, scale=scaling)
    return found.reshape(rows, heads, tokens, width).transpose(1, 2).contiguous(), None


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
    step = max(1, MOST_SCORES // (heads * queries * (own + longest)))
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

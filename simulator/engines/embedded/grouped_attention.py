"""Attention of models whose query heads share key heads, to sample: without copies of the keys.

Transformers repeats keys and values for every query head where a mask is given; that copy of the whole window
costs ten times the attention itself. Here query heads that share a key head are further queries of it.
"""

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


def use_grouped_attention(model: Any) -> None:
    """Let a model attend by `grouped_attention` where it would by SDPA."""
    if model.config._attn_implementation == "sdpa" and hasattr(model.config, "num_key_value_heads"):
        model.set_attn_implementation(NAME)


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
    is_decoding = tokens == 1 and not torch.is_grad_enabled()
    # a GPU's kernels for many queries are worth the copy
    is_plain = groups == 1 or (query.is_cuda and not is_decoding)
    if attention_mask is None or is_plain or attention_mask.shape[1] != 1:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **options)
    folded = query.reshape(rows, key_heads, groups * tokens, width)
    mask = attention_mask.repeat(1, 1, groups, 1)
    if is_decoding:
        folded = folded * (width**-0.5 if scaling is None else scaling)
        found = _attend_in_products(folded, key, value, mask)
    else:
        found = scaled_dot_product_attention(folded, key, value, attn_mask=mask, scale=scaling)
    return found.reshape(rows, heads, tokens, width).transpose(1, 2).contiguous(), None


def _attend_in_products(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """Attention of scaled queries (rows, key heads, queries, width) by plain products, some rows at a time.

    While decoding this is several times as fast on a CPU as SDPA's kernel, which is made for many queries.
    """
    _, heads, queries, _ = query.shape
    columns = key.shape[2]
    most = MOST_SCORES_ON_GPU if query.is_cuda else MOST_SCORES
    at_once = max(1, most // (heads * queries * columns))
    found = []
    for part in zip(*(torch.split(one, at_once) for one in (query, key, value, mask)), strict=True):
        some, keys, values, seen = part
        scores = torch.bmm(some.flatten(0, 1), keys.flatten(0, 1).transpose(1, 2))
        scores = scores.view(-1, heads, queries, columns).masked_fill_(~seen, -torch.inf)
        found.append(torch.bmm(scores.softmax(-1).flatten(0, 1), values.flatten(0, 1)).view(some.shape))
    return torch.cat(found)


AttentionInterface.register(NAME, grouped_attention)
AttentionMaskInterface.register(NAME, sdpa_mask)

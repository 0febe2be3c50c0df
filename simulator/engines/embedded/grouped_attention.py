"""SDPA without copies of keys: query heads that share a key head are taken for further queries of it.

Transformers repeats keys and values for every query head where a mask is given. While sampling on a CPU that
copy of the whole window costs ten times the attention itself.
"""

from typing import Any

from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "emads_grouped"


def use_grouped_attention(model: Any) -> None:
    """Let a model on a CPU that shares key heads attend by `grouped_attention` where it would by SDPA."""
    config = model.config
    shares = getattr(config, "num_key_value_heads", None) not in (None, config.num_attention_heads)
    if shares and config._attn_implementation == "sdpa" and not next(model.parameters()).is_cuda:
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
    groups = heads // key.shape[1]
    if attention_mask is None or query.is_cuda or groups == 1 or attention_mask.shape[1] != 1:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **options)
    folded = query.reshape(rows, key.shape[1], groups * tokens, width)
    mask = attention_mask.repeat(1, 1, groups, 1)
    found = scaled_dot_product_attention(folded, key, value, attn_mask=mask, scale=scaling)
    return found.reshape(rows, heads, tokens, width).transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, grouped_attention)
AttentionMaskInterface.register(NAME, sdpa_mask)

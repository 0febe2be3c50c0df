"""Attention over rows that stand end to end: each segment sees itself, causally, and the prompt it shares.

`use_row_attention` gives a model an attention that is its usual one (SDPA) until a forward pass brings a
`RowLayout`. On CUDA in half precision one variable-length flash kernel serves all segments; elsewhere each
segment is one SDPA call, so that no mask over the whole line is ever made.
"""

from dataclasses import dataclass
from inspect import signature
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "emads_rows"


class Segment(NamedTuple):
    """Tokens start to stop of the line; they also see the tokens prefix_start to prefix_stop."""

    start: int
    stop: int
    prefix_start: int
    prefix_stop: int  # equal to prefix_start where nothing is shared


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLayout:
    """Tokens of one line that belong together.

    Example: RowLayout.of([Segment(0, 3, 0, 0), Segment(3, 5, 0, 3)], "cpu")  # a prompt, one row after it
    """

    segments: tuple[Segment, ...]  # in order, without gaps
    masks: tuple[Tensor | None, ...]  # of each segment over its prefix and itself; None: plainly causal
    key_places: Tensor  # of every segment prefix and own tokens, one after the other
    query_ends: Tensor  # int32, 0 and the running sums of the segments' lengths
    key_ends: Tensor  # int32, the same over prefix and own tokens
    longest_query: int
    longest_key: int

    @classmethod
    def of(cls, segments: list[Segment], device: torch.device | str) -> "RowLayout":
        """The layout of these segments.

        Raises:
            ValueError: they leave a gap, or one sees what comes after it.
        """
        end = 0
        for start, stop, prefix_start, prefix_stop in segments:
            if start != end or stop <= start or not prefix_start <= prefix_stop <= start:
                raise ValueError(f"segment {start}:{stop} after {end} sees {prefix_start}:{prefix_stop}")
            end = stop
        queries = [stop - start for start, stop, _, _ in segments]
        keys = [one.stop - one.start + one.prefix_stop - one.prefix_start for one in segments]
        places = [
            place
            for start, stop, prefix_start, prefix_stop in segments
            for place in (*range(prefix_start, prefix_stop), *range(start, stop))
        ]
        masks: dict[tuple[int, int], Tensor | None] = {}
        for query, key in zip(queries, keys, strict=True):
            if (query, key) not in masks:
                lower_right = torch.ones(query, key, dtype=torch.bool).tril(key - query)
                masks[query, key] = None if query == key else lower_right.to(device)
        return cls(
            segments=tuple(segments),
            masks=tuple(masks[pair] for pair in zip(queries, keys, strict=True)),
            key_places=torch.tensor(places, device=device),
            query_ends=_running_ends(queries, device),
            key_ends=_running_ends(keys, device),
            longest_query=max(queries),
            longest_key=max(keys),
        )


def _running_ends(lengths: list[int], device: torch.device | str) -> Tensor:
    return torch.tensor([0, *lengths]).cumsum(0).to(device=device, dtype=torch.int32)


def use_row_attention(model: nn.Module) -> None:
    """Let the model take a `layout`; without one it computes exactly what it did."""
    adapted: Any = model
    if adapted.config._attn_implementation != NAME:
        adapted.set_attn_implementation(NAME)


def row_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    layout: RowLayout | None = None,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attention as Transformers calls it: (1, heads, tokens, width) in, (1, tokens, heads, width) out."""
    if layout is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **options)
    if options.get("sliding_window") is not None:
        raise ValueError("row layouts do not know sliding windows: use row_layout padded")
    if query.is_cuda and torch.is_autocast_enabled("cuda"):  # rotary positions leave queries in float32
        precision = torch.get_autocast_dtype("cuda")
        query, key, value = (one.to(precision) for one in (query, key, value))
    if query.is_cuda and query.dtype in (torch.float16, torch.bfloat16):
        return _attend_at_once(query, key, value, layout, scaling), None
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    cuts = [stop - start for start, stop, _, _ in layout.segments]  # split, not sliced: a slice's gradient
    queries, keys, values = (one.split_with_sizes(cuts, 2) for one in (query, key, value))  # is a zeroed line
    number_of = {(start, stop): number for number, (start, stop, _, _) in enumerate(layout.segments)}
    parts = []
    for number, ((_, _, prefix_start, prefix_stop), mask) in enumerate(
        zip(layout.segments, layout.masks, strict=True)
    ):
        seen_keys, seen_values = keys[number], values[number]
        if prefix_stop > prefix_start:
            first = number_of[prefix_start, prefix_stop]
            seen_keys = torch.cat([keys[first], seen_keys], 2)
            seen_values = torch.cat([values[first], seen_values], 2)
        parts.append(
            scaled_dot_product_attention(
                queries[number], seen_keys, seen_values, attn_mask=mask, is_causal=mask is None, scale=scaling
            )
        )
    return torch.cat([part.transpose(1, 2) for part in parts], 1), None


def _attend_at_once(
    query: Tensor, key: Tensor, value: Tensor, layout: RowLayout, scaling: float | None
) -> Tensor:
    """All segments in one flash kernel; a causal window there is aligned to the last key, as it must be."""
    from torch.nn.attention.varlen import varlen_attn

    # before 2.12 the kernel takes fewer keys than queries without being told
    grouped: dict[str, Any] = (
        {"enable_gqa": True} if "enable_gqa" in signature(varlen_attn).parameters else {}
    )
    gathered = [one[0].transpose(0, 1)[layout.key_places] for one in (key, value)]  # (keys, heads, width)
    attended: Any = varlen_attn(
        query[0].transpose(0, 1).contiguous(),
        gathered[0],
        gathered[1],
        layout.query_ends,
        layout.key_ends,
        layout.longest_query,
        layout.longest_key,
        scale=scaling,
        window_size=(-1, 0),
        **grouped,
    )
    result: Tensor = attended[None]
    return result


AttentionInterface.register(NAME, row_attention)
AttentionMaskInterface.register(NAME, sdpa_mask)

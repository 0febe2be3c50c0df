"""Attention over rows that stand end to end: each segment sees itself, causally, and the prompts it shares.

`use_row_attention` gives a model an attention that is its usual one (SDPA) until a forward pass brings a
`RowLayout`. On CUDA in half precision one variable-length flash kernel serves all segments; elsewhere each
segment is one call of SDPA, so that no mask over the whole line is ever made.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from roles.errors import UserError
from simulator.engines.embedded.grouped_attention import grouped_attention

NAME = "emads_rows"


_PLAIN_OPTIONS = (
    *("dropout", "is_causal", "position_ids", "use_cache", "output_attentions", "cache_position"),
    "output_router_logits",
)
_calls: ContextVar[list[nn.Module] | None] = ContextVar("layers that attended by rows", default=None)


class Segment(NamedTuple):
    """Tokens start to stop of the line; they also see the tokens of the earlier segments `seen`."""

    start: int
    stop: int
    seen: tuple[tuple[int, int], ...] = ()  # start and stop of each, in the order of the text


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLayout:
    """Tokens of one line that belong together.

    Example: RowLayout.of([Segment(0, 3), Segment(3, 5, ((0, 3),))], "cpu")  # a prompt, one row after it
    """

    segments: tuple[Segment, ...]  # in order, without gaps
    key_places: Tensor  # of every segment seen and own tokens, one after the other
    query_ends: Tensor  # int32, 0 and the running sums of the segments' lengths
    key_ends: Tensor  # int32, the same over seen and own tokens
    longest_query: int
    longest_key: int
    _masks: dict[tuple[int, int], Tensor] = field(default_factory=dict)

    def mask(self, queries: int, keys: int) -> Tensor | None:
        """Return the mask (queries, keys) of the last `queries` of `keys` tokens, for SDPA; None: causal."""
        if queries == keys:
            return None
        if (queries, keys) not in self._masks:
            seen = torch.ones(queries, keys, dtype=torch.bool, device=self.key_places.device)
            self._masks[queries, keys] = seen.tril(keys - queries)
        return self._masks[queries, keys]

    @classmethod
    def of(cls, segments: list[Segment], device: torch.device | str) -> "RowLayout":
        """The layout of these segments.

        Raises:
            ValueError: they leave a gap, or one sees what is no segment before it.
        """
        end, before = 0, set[tuple[int, int]]()
        for start, stop, seen in segments:
            if start != end or stop <= start or not before.issuperset(seen):
                raise ValueError(f"segment {start}:{stop} after {end} sees {list(seen)}")
            end = stop
            before.add((start, stop))
        queries = [stop - start for start, stop, _ in segments]
        spans = [(*seen, (start, stop)) for start, stop, seen in segments]
        keys = [sum(stop - start for start, stop in of_one) for of_one in spans]
        places = np.concatenate([np.arange(*span) for of_one in spans for span in of_one])
        return cls(
            segments=tuple(segments),
            key_places=torch.from_numpy(places).to(device),
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


@contextmanager
def every_layer_by_rows(model: Any) -> Iterator[None]:
    """Refuse a pass over a row layout in which a layer mixed tokens past it.

    Raises:
        UserError: fewer layers attended by the layout than the model has.
    """
    calls: list[nn.Module] = []
    token = _calls.set(calls)
    kind, wanted = model.config.model_type, model.config.get_text_config().num_hidden_layers
    try:
        yield
    except TypeError as error:  # a forward pass that takes no layout
        raise UserError(f"{kind} takes no row layout: use row_layout padded ({error})") from error
    finally:
        _calls.reset(token)
    if len(calls) != wanted:
        raise UserError(
            f"{len(calls)} of the {wanted} layers of {kind} attend by row layouts: use row_layout padded"
        )


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
        return grouped_attention(module, query, key, value, attention_mask, scaling=scaling, **options)
    if unknown := sorted(
        key
        for key, one in options.items()
        if one is not None and one is not False and key not in _PLAIN_OPTIONS
    ):
        raise UserError(f"row layouts do not know {', '.join(unknown)} of this model: use row_layout padded")
    if (calls := _calls.get()) is not None:
        calls.append(module)
    if query.is_cuda and torch.is_autocast_enabled("cuda"):  # rotary positions leave queries in float32
        precision = torch.get_autocast_dtype("cuda")
        query, key, value = (one.to(precision) for one in (query, key, value))
    if query.is_cuda and query.dtype in (torch.float16, torch.bfloat16):
        return _attend_at_once(query, key, value, layout, scaling), None
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    cuts = [one.stop - one.start for one in layout.segments]  # split, not sliced: a slice's gradient
    queries, keys, values = (one.split_with_sizes(cuts, 2) for one in (query, key, value))  # is a zeroed line
    number_of = {(start, stop): number for number, (start, stop, _) in enumerate(layout.segments)}
    parts = []
    for number, segment in enumerate(layout.segments):
        seen_keys, seen_values = keys[number], values[number]
        if segment.seen:
            shared = [number_of[one] for one in segment.seen]
            seen_keys = torch.cat([*(keys[one] for one in shared), seen_keys], 2)
            seen_values = torch.cat([*(values[one] for one in shared), seen_values], 2)
        mask = layout.mask(queries[number].shape[2], seen_keys.shape[2])
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

"""Notes what every rank gives to collectives: where these differ NCCL hangs."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

NAMES = (
    "all_reduce",
    "all_gather",
    "broadcast",
    "scatter",
    "all_gather_into_tensor",
    "reduce_scatter_tensor",
)
Call = tuple[str, str, tuple[int, ...], str]  # name, device and shape and precision of its first tensor


def note_collectives() -> list[Call]:
    """Wrap the collectives of this process; the list grows with every call."""
    calls: list[Call] = []

    def wrap(name: str, collective: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any, **kwargs: Any) -> Any:
            given = [*args, *kwargs.values()]
            flat = [part for one in given for part in (one if isinstance(one, list) else [one])]
            first = next(one for one in flat if isinstance(one, Tensor))
            calls.append((name, first.device.type, tuple(first.shape), str(first.dtype)))
            return collective(*args, **kwargs)

        return noted

    for name in NAMES:
        wrapped = wrap(name, getattr(dist, name))
        setattr(dist, name, wrapped)
        setattr(torch.distributed.distributed_c10d, name, wrapped)  # as collectives of objects call it
    return calls


def differences(of_ranks: list[list[Call]]) -> list[tuple[int, list[Call | None]]]:
    """The first place at which ranks did not call the same, with their calls; [] where there is none."""
    for place in range(max(map(len, of_ranks))):
        calls = [one[place] if place < len(one) else None for one in of_ranks]
        if len(set(calls)) > 1:
            return [(place, calls)]
    return []

"""Work of several training processes together: sharing scenarios, averaging gradients and metrics.

Every rank holds all weights (data parallel) or its part of them (FSDP2, `training/learner/fsdp.py`) and an
engine of its own. A loss is a mean over the rank's own rows, so that averages over ranks are weighted by what
each rank had: gradients are those of one process on all scenarios.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """This process among all of them."""

    rank: int
    size: int

    def shard(self, items: Sequence[Item]) -> tuple[list[Item], int]:
        """This rank's part, one stretch as long as the others' or by one longer, and where it begins."""
        first = len(items) * self.rank // self.size
        return list(items[first : len(items) * (self.rank + 1) // self.size]), first

    def sum(self, values: Sequence[float]) -> list[float]:
        """Sums over all ranks, in float64."""
        if self.size == 1:
            return list(values)
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor)
        return [float(value) for value in tensor]

    def gather(self, item: Item) -> list[Item]:
        """Every rank's item, in the order of the ranks."""
        if self.size == 1:
            return [item]
        gathered: list[Item] = [item] * self.size
        dist.all_gather_object(gathered, item)
        return gathered

    def wait(self) -> None:
        """Go on when all ranks have come here: before what one of them wrote, or is to remove, is read."""
        if self.size > 1:
            dist.barrier()

    @contextmanager
    def first_alone(self) -> Iterator[None]:
        """Rank 0 goes before the others: what it mends in a folder or sets aside is done when they look."""
        if self.rank:
            self.wait()
        yield
        if not self.rank:
            self.wait()

    def most(self, value: int) -> int:
        """The largest value of any rank."""
        if self.size == 1:
            return value
        tensor = torch.tensor(value)
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        return int(tensor)

    def add_gradients(self, parameters: Sequence[nn.Parameter], *, has_gradient: bool) -> bool:
        """Sum the gradients over all ranks in place; whether any rank had one.

        They are sums, not means, because every rank has divided by the counts of all ranks.
        """
        if self.size == 1:
            return has_gradient
        if not self.sum([float(has_gradient)])[0]:
            return False
        for parameter in parameters:
            if parameter.grad is None and not isinstance(parameter, DTensor):
                parameter.grad = torch.zeros_like(parameter)
        gradients: list[Tensor] = [p.grad for p in parameters if p.grad is not None]
        if isinstance(gradients[0], DTensor):
            return True  # summed while they were sharded
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat)
        start = 0
        for gradient in gradients:
            gradient.copy_(flat[start : start + gradient.numel()].view_as(gradient))
            start += gradient.numel()
        return True

    def mean(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Metrics averaged over the ranks that have them."""
        if self.size == 1:
            return dict(metrics)
        gathered = self.gather(dict(metrics))
        names = dict.fromkeys(name for one in gathered for name in one)
        averaged = {}
        for name in names:
            values = [one[name] for one in gathered if name in one]
            averaged[name] = sum(values) / len(values)
        return averaged


ONE_RANK = Ranks(rank=0, size=1)

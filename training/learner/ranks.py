"""Work of several training processes together: sharing scenarios, averaging gradients and metrics.

Every rank holds all weights (data parallel) or its part of them (FSDP2, `training/learner/fsdp.py`) and an
engine of its own. A loss is a mean over the rank's own rows, so that averages over ranks are weighted by what
each rank had: gradients are those of one process on all scenarios.
"""

import atexit
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from training.runs.run_errors import WorkerLostError

Item = TypeVar("Item")
BUCKET = 2**26  # numbers that are summed at once: a copy of 256 MiB in float32


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """This process among all of them."""

    rank: int
    size: int
    shares_weights: bool = False  # of one role: each holds a part of them (FSDP2), not all

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

    def first(self, item: Item) -> Item:
        """The first rank's item."""
        if self.size == 1:
            return item
        sent = [item]
        dist.broadcast_object_list(sent)
        return sent[0]

    def scatter(self, items: Sequence[Item]) -> Item:
        """This rank's one of the first rank's items, which has one for every rank; others' are not read."""
        if self.size == 1:
            return items[0]
        received: list[Any] = [None]
        dist.scatter_object_list(received, list(items) if self.rank == 0 else None)
        return received[0]  # type: ignore[no-any-return]

    def wait(self) -> None:
        """Go on when all ranks have come here: before what one of them wrote, or is to remove, is read."""
        if self.size > 1:
            dist.barrier()

    @contextmanager
    def main_process_first(self) -> Iterator[None]:
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

    def add_gradients(self, sets: Sequence[Sequence[nn.Parameter]], learns: Sequence[bool]) -> list[bool]:
        """Sum the gradients of sets of weights over all ranks in place; of each whether any rank `learns`.

        They are sums, not means, because every rank has divided by the counts of all ranks. They travel in
        buckets; those of sharded weights were summed in the backward pass.
        """
        if self.size == 1:
            return list(learns)
        anywhere = [total > 0 for total in self.sum([float(one) for one in learns])]
        gradients: list[Tensor] = []
        for parameters, is_learning in zip(sets, anywhere, strict=True):
            for parameter in parameters if is_learning else ():
                if isinstance(parameter, DTensor):
                    continue
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                gradients.append(parameter.grad)
        for bucket in _cut_buckets(gradients):
            flat = torch.cat([gradient.flatten() for gradient in bucket])
            dist.all_reduce(flat)
            for gradient, part in zip(
                bucket, flat.split_with_sizes([one.numel() for one in bucket]), strict=True
            ):
                gradient.copy_(part.view_as(gradient))
        return anywhere

    def share_work(self, work: Callable[[Tensor], Tensor], items: Tensor) -> Tensor:
        """`work(items)`, each rank computing its part of the items; all have the same ones (count, ...).

        Sharded items are computed by all ranks together, as `work` does it.
        """
        if self.size == 1 or isinstance(items, DTensor):
            return work(items)
        count = -(-len(items) // self.size)
        own = items[self.rank * count : (self.rank + 1) * count]
        part = items.new_zeros(count, *items.shape[1:])
        if len(own):
            part[: len(own)] = work(own)
        parts = [torch.empty_like(part) for _ in range(self.size)]
        dist.all_gather(parts, part)
        return torch.cat(parts)[: len(items)]

    def mean(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Metrics averaged over ranks that have them; `loss` summed, of `mismatch_max`, `_call` the largest.

        A loss was divided by the counts of all ranks.
        """
        if self.size == 1:
            return dict(metrics)
        gathered = self.gather(dict(metrics))
        names = dict.fromkeys(name for one in gathered for name in one)
        averaged = {}
        for name in names:
            values = [one[name] for one in gathered if name in one]
            kind = name.partition("/")[0]
            if kind in ("mismatch_max", "mismatch_call"):
                averaged[name] = max(values)
            else:
                averaged[name] = sum(values) / (1 if kind == "loss" else len(values))
        return averaged


def _cut_buckets(gradients: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """In order, neighbours of one precision together, at most BUCKET numbers or one tensor."""
    bucket: list[Tensor] = []
    for gradient in gradients:
        held = sum(one.numel() for one in bucket)
        if bucket and (held + gradient.numel() > BUCKET or bucket[0].dtype != gradient.dtype):
            yield bucket
            bucket = []
        bucket.append(gradient)
    if bucket:
        yield bucket


ONE_RANK = Ranks(rank=0, size=1)
_LOST = (
    *("connection closed", "connection reset", "broken pipe", "timed out", "timeout", "was aborted"),
    "failed to pass",  # the barrier of TORCH_DISTRIBUTED_DEBUG=DETAIL
)


@contextmanager
def explain_lost_ranks(ranks: Ranks) -> Iterator[None]:
    """Turn what a collective raises where another rank died or hangs into an error that says so.

    Raises:
        WorkerLostError: in place of a RuntimeError of torch.distributed.
    """
    try:
        yield
    except RuntimeError as error:
        reason = str(error).partition("\n")[0][:200]
        if ranks.size == 1 or not any(sign in str(error).lower() for sign in _LOST):
            raise
    else:
        return
    raise WorkerLostError(
        f"rank {ranks.rank} lost another one, which ended or hangs ({reason}); look at its log and at its"
        " machine's memory, and go on with --resume"
    )


def end_process(status: int) -> NoReturn:
    """End a rank that has done its work: exit functions run, files are flushed, nothing is torn down.

    Gloo's threads outlive `destroy_process_group` where PyTorch's caches still hold a device mesh. If such a
    thread frees a tensor while the interpreter is torn down, the process is aborted (SIGABRT), and torchrun
    reports a finished stage as failed (https://github.com/pytorch/pytorch/pull/179291).
    """
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)

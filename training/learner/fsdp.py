"""Training on several processes: joining them, FSDP2 sharding of a model, its whole weights again.

    torchrun --nproc-per-node 4 -m training.stages.on_ranks RUN marl

Up to about 3B parameters every rank holds all weights (data parallel) and plays with them. Above that
`memory.sharding` fsdp2 shards what is trained; each rank then plays with a whole copy in the precision of
rollouts, refreshed before it plays. Gradients are summed over ranks, as all losses are divided by counts over
all ranks: the step is that of one process on all scenarios.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.distributed.tensor import DTensor

from roles.errors import UserError
from simulator.engines.adapter_names import START
from training.learner import token_logprobs
from training.learner.ranks import ONE_RANK, Ranks
from training.runs.resume import StageCheckpoints
from training.runs.state_files import split_shards, write_shards, write_state

BACKENDS = "cpu:gloo,cuda:nccl"  # counts and objects lie on the CPU, gradients on the GPU


def join_ranks(*, timeout_s: float = 1800.0) -> Ranks:
    """This process among those that torchrun started; alone where there is no torchrun.

    A rank that waits longer than `timeout_s` for the others ends with an error.

    Raises:
        UserError: torchrun's variables are there in part, or this process has no GPU while others do.
    """
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    missing = [name for name in names if name not in os.environ]
    if len(missing) == len(names):
        return ONE_RANK
    if missing:
        raise UserError(f"{', '.join(missing)} not set: start with torchrun, or unset {names[0]}")
    from datetime import timedelta

    waits = timedelta(seconds=timeout_s)
    if not torch.cuda.is_available():
        dist.init_process_group("gloo", timeout=waits)
        return Ranks(rank=dist.get_rank(), size=dist.get_world_size())
    place, count = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if place >= count:
        raise UserError(
            f"process {place} of this node has no GPU: {count} visible; use --nproc-per-node {count}"
        )
    device = torch.device("cuda", place)
    torch.cuda.set_device(device)
    dist.init_process_group(BACKENDS, timeout=waits, device_id=device)
    return Ranks(rank=dist.get_rank(), size=dist.get_world_size())


def leave_ranks(ranks: Ranks) -> None:
    """Undo `join_ranks`."""
    if ranks.size > 1:
        dist.destroy_process_group()


def shard_model(model: Any, *, bf16: bool = False, cpu_offload: bool = False) -> None:
    """FSDP2 in place: one group of weights per decoder layer, embeddings and head in the root's.

    With `bf16` passes compute in bfloat16; weights, gradients' sums and optimizer stay in float32.
    """
    for name, parameter in model.named_parameters():  # what may learn later must be known to do so now
        if "lora_" in name and f".{START}" not in name:
            parameter.requires_grad_(True)
    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16 if bf16 else None, reduce_dtype=torch.float32 if bf16 else None
    )
    pinned = torch.cuda.is_available()  # without a GPU there is nothing to copy to
    offload = CPUOffloadPolicy(pin_memory=pinned) if cpu_offload else OffloadPolicy()
    for layer in model.get_decoder().layers:
        fully_shard(layer, mp_policy=policy, offload_policy=offload)
    fully_shard(model, mp_policy=policy, offload_policy=offload)
    token_logprobs.make_shardable(model)
    for name in token_logprobs.SHARDED_METHODS:
        register_fsdp_forward_method(model, name)


def is_sharded(model: nn.Module) -> bool:
    """Return whether the model went through `shard_model`."""
    return isinstance(model, FSDPModule)


def compute_device(model: nn.Module) -> torch.device:
    """Return where a pass of the model is computed; its sharded weights may rest on the host meanwhile."""
    parameter = next(model.parameters())
    if isinstance(parameter, DTensor) and parameter.device_mesh.device_type == "cuda":
        return torch.device("cuda", torch.cuda.current_device())
    return parameter.device


def whole(tensor: Tensor) -> Tensor:
    """The full tensor of a sharded one, on every rank (all must call it); any other as it is."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


@torch.no_grad()
def copy_whole(weights: Mapping[str, Tensor], places: Mapping[str, Tensor]) -> None:
    """Copy weights, sharded or not, into whole places of the same names; all ranks call it.

    One at a time: all at once would be a second model. A rank may leave places out.
    """
    for name, weight in weights.items():
        tensor = whole(weight)
        if name in places:
            places[name].copy_(tensor)


def save_on_ranks(
    checkpoints: StageCheckpoints,
    step: int,
    states: Mapping[str, Any],
    ranks: Ranks,
    also: Callable[[Path], None] = lambda folder: None,
) -> None:
    """Let rank 0 write each state under its name, and every rank its parts of what is sharded.

    `also`: writes more into rank 0's folder. States that other ranks leave out hold nothing sharded.
    """
    split = {name: split_shards(state) for name, state in states.items()}

    def write(folder: Path | None) -> None:
        if folder is not None:
            also(folder)
            for name, (state, _) in split.items():
                write_state(folder, name, state)
        for name, (_, shards) in split.items():
            if shards:
                write_shards(ranks.first(folder or Path()), name, shards)

    if ranks.rank == 0:
        checkpoints.save(step, write)
    else:
        write(None)
    ranks.wait()

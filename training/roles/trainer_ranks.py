"""Agreement of the processes of a Hugging Face trainer on a checkpoint: its time, its folder, all states."""

from typing import Any, TypeVar

import torch
import torch.distributed as dist
from accelerate.utils import parse_flag_from_env

Value = TypeVar("Value")


def uses_deepspeed() -> bool:
    """Return whether accelerate was told to launch with DeepSpeed."""
    return bool(parse_flag_from_env("ACCELERATE_USE_DEEPSPEED"))


def device_options() -> dict[str, Any]:
    """Return a trainer's arguments for this machine; DeepSpeed has its own precision, and gloo on a CPU."""
    has_gpu = torch.cuda.is_available()
    if uses_deepspeed():
        return {"bf16": False} | ({} if has_gpu else {"ddp_backend": "gloo"})
    return {"use_cpu": not has_gpu, "bf16": has_gpu}


def agree(value: Value) -> Value:
    """The first process's value, in every process; without a process group the value itself."""
    if not _are_several():
        return value
    shared = [value]
    dist.broadcast_object_list(shared, src=0)
    return shared[0]


def collect(value: Value) -> list[Value]:
    """Every process's value in the first process, in rank order; in the others a list of nothing."""
    if not _are_several():
        return [value]
    found: list[Any] | None = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
    dist.gather_object(value, found, dst=0)
    return found or []


def is_first() -> bool:
    """Return whether this process writes for all."""
    return not _are_several() or dist.get_rank() == 0


def own_rank() -> int:
    """This process's number."""
    return dist.get_rank() if _are_several() else 0


def _are_several() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1

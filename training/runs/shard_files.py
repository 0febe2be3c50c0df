"""Sharded tensors of a checkpoint: every rank writes its parts, and any number of ranks reads them again.

Files of torch.distributed.checkpoint in safetensors, no pickle: nobody who has a part holds the whole tensor.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.tensor import DTensor, distribute_tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """A sharded tensor in a state. Example: Shard(key="/models/cto/w", shape=(512, 64), folder=None)"""

    key: str
    shape: tuple[int, ...]  # of the whole tensor
    folder: Path | None  # where all parts are; None while it is being saved


def split_shards(state: Any) -> tuple[Any, dict[str, Tensor]]:
    """The state with a Shard in place of every sharded tensor, and those tensors by key."""
    shards: dict[str, Tensor] = {}

    def split(value: Any, key: str) -> Any:
        if isinstance(value, DTensor):
            shards[key] = value.detach()
            return Shard(key=key, shape=tuple(value.shape), folder=None)
        if isinstance(value, Mapping):
            return {name: split(one, f"{key}/{name}") for name, one in value.items()}
        if isinstance(value, list):
            return [split(one, f"{key}/{place}") for place, one in enumerate(value)]
        return value

    return split(state, ""), shards


def write_shards(folder: Path, name: str, shards: Mapping[str, Tensor]) -> None:
    """Write the tensors of `split_shards` beside the state `name`; all ranks call it with the same folder.

    Raises:
        OSError: the disk of any rank is full or not writable.
    """
    writer = HuggingFaceStorageWriter(str(shards_folder(folder, name)), save_distributed=True)
    try:
        save(dict(shards), storage_writer=writer)
    except CheckpointException as error:
        reason = next(iter(error.failures.values()))[0]
        raise reason if isinstance(reason, OSError) else error from None


def shards_folder(folder: Path, name: str) -> Path:
    """Where `write_shards` puts its files."""
    return folder / f"{name}.shards"


def load_like(stored: Mapping[str, Tensor | Shard], places: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Stored tensors by name, each sharded as its place is, or whole where that is whole."""
    found: dict[str, Tensor] = {}
    for folder in {one.folder for one in stored.values() if isinstance(one, Shard)}:
        keys = {name: one.key for name, one in stored.items() if isinstance(one, Shard)}
        found = {name: torch.empty_like(places[name]) for name in keys}
        by_key = {key: found[name] for name, key in keys.items()}
        reader = HuggingFaceStorageReader(str(folder))
        load(by_key, storage_reader=reader, no_dist=not dist.is_initialized())
    return {
        name: found[name] if isinstance(one, Shard) else _place_like(one, places[name])
        for name, one in stored.items()
    }


def _place_like(stored: Tensor, place: Tensor) -> Tensor:
    """This rank's part of a full tensor, sharded as `place` is; as it is where that is not sharded."""
    if not isinstance(place, DTensor) or isinstance(stored, DTensor):
        return stored
    return distribute_tensor(stored.to(place.device), place.device_mesh, place.placements)

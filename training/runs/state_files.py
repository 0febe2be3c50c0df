"""Optimizer, scheduler, sampler and window states as files: JSON for the structure, safetensors for tensors.

No pickle: a file can hold numbers, text, containers and tensors, and reading it runs no code. Of a sharded
tensor every rank writes its parts (torch.distributed.checkpoint), and any number of ranks reads them again:
nobody who has a part holds the whole.
"""

import json
import math
import random
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.tensor import DTensor, distribute_tensor

from simulator.export.atomic_files import encode_json
from training.runs.checkpoints import DamagedCheckpointError


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
    for name, one in stored.items():
        place = places[name]
        if isinstance(one, Shard):
            continue
        if isinstance(place, DTensor) and not isinstance(one, DTensor):  # this rank's part of the whole
            one = distribute_tensor(one.to(place.device), place.device_mesh, place.placements)
        found[name] = one
    return found


_SPECIAL = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def write_state(folder: Path, name: str, value: Any) -> None:
    """Write `name.json` and, if there are tensors, `name.safetensors`.

    `value` may nest dicts (keys of text, int, float, bool), lists, tuples, numbers, text, None, tensors,
    numpy arrays, and Shards (training/runs/state_files.py). Deques become lists; NaN and infinities are kept.
    Equal values give equal bytes: the order of a dict is not kept.

    Raises:
        TypeError: anything else, naming its type.
    """
    tensors: dict[str, Tensor] = {}
    structure = _encode(value, tensors)
    if tensors:
        save_file(tensors, folder / f"{name}.safetensors")
    (folder / f"{name}.json").write_bytes(encode_json(structure))


def read_state(folder: Path, name: str) -> Any:
    """The state that `write_state` wrote, tensors on the CPU.

    Raises:
        DamagedCheckpointError: missing, malformed, or a tensor that the structure names is not there.
    """
    try:
        structure = json.loads((folder / f"{name}.json").read_bytes())
        file = folder / f"{name}.safetensors"
        tensors = load_file(file) if file.is_file() else {}
        return _decode(structure, tensors, shards_folder(folder, name))
    except (OSError, ValueError, KeyError, TypeError, SafetensorError, RecursionError) as error:
        raise DamagedCheckpointError(f"state {folder / name} cannot be read: {error}") from None


def _encode(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        key = str(len(tensors))
        tensors[key] = value.detach().to("cpu", copy=True).contiguous()
        return {"$tensor": key}
    if isinstance(value, Shard):
        return {"$shard": [value.key, *value.shape]}
    if isinstance(value, np.ndarray):
        return {"$array": _encode(torch.from_numpy(value.copy()), tensors)}
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else {"$float": str(float(value))}
    if isinstance(value, tuple):
        return {"$tuple": [_encode(item, tensors) for item in value]}
    if isinstance(value, list | deque):
        return [_encode(item, tensors) for item in value]
    if isinstance(value, Mapping):
        ordered = sorted(value.items(), key=lambda pair: (str(type(pair[0])), pair[0]))
        pairs = [(key, _encode(item, tensors)) for key, item in ordered]
        if all(isinstance(key, str) and not key.startswith("$") for key, _ in pairs):
            return dict(pairs)
        return {"$dict": [[_encode(key, tensors), item] for key, item in pairs]}
    raise TypeError(f"a state cannot hold {type(value).__name__}")


def _decode(value: Any, tensors: Mapping[str, Tensor], shards: Path) -> Any:
    if isinstance(value, list):
        return [_decode(item, tensors, shards) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1 or not next(iter(value)).startswith("$"):
        return {key: _decode(item, tensors, shards) for key, item in value.items()}
    ((kind, content),) = value.items()
    if kind == "$tensor":
        return tensors[content]
    if kind == "$shard":
        return Shard(key=content[0], shape=tuple(content[1:]), folder=shards)
    if kind == "$array":
        return _decode(content, tensors, shards).numpy()
    if kind == "$float":
        return _SPECIAL[content]
    if kind == "$tuple":
        return tuple(_decode(item, tensors, shards) for item in content)
    if kind == "$dict":
        return {_decode(key, tensors, shards): _decode(item, tensors, shards) for key, item in content}
    raise ValueError(f"unknown mark {kind!r}")


def capture_random_states() -> dict[str, Any]:
    """The states as numbers, arrays and tensors, for `write_state`."""
    states: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.random.get_rng_state(),
    }
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state_all()
    return states


def restore_random_states(states: dict[str, Any]) -> None:
    """Continue every generator where `capture_random_states` found it.

    GPU states are restored where there are as many GPUs as then.
    """
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])
    torch.random.set_rng_state(states["torch"])
    cuda = states.get("cuda")
    if cuda is not None and torch.cuda.device_count() == len(cuda):
        torch.cuda.set_rng_state_all(cuda)

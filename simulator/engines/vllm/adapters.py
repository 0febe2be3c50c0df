"""Adapters for a vLLM engine: PEFT folders held in memory, checked before anything loads them."""

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from roles.errors import InfrastructureError, UserError

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
MEMORY = Path("/dev/shm")
PREFIX = "emads-adapters-"  # then the process id


class AdapterStore:
    """A private folder, in memory where the system has one (/dev/shm): one folder per adapter version.

    Engines read an adapter again when it fell out of their own cache, so a version stays until `drop`.
    """

    def __init__(self, parent: Path | None = None) -> None:
        """`parent`: where to put it; None for memory, or the system's temp folder where there is none."""
        if parent is None and MEMORY.is_dir():
            parent = MEMORY
            _sweep(parent)
        self.root = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=parent))
        self._num_put = 0

    def put(self, source: Path | Any, *, adapter: str = "default", max_rank: int | None = None) -> Path:
        """Copy a PEFT folder, or a live PEFT model's `adapter` (nothing is merged); return the copy's folder.

        Raises:
            InfrastructureError: missing, cut short, not finite, or not a LoRA; names the file.
            UserError: its rank is above `max_rank`.
        """
        self._num_put += 1
        target = self.root / str(self._num_put)
        target.mkdir()
        try:
            if isinstance(source, Path):
                for name in (CONFIG, WEIGHTS):
                    shutil.copyfile(source / name, target / name)
            else:
                _write_live(source, adapter, target)
            check_adapter(target, shown=source if isinstance(source, Path) else None, max_rank=max_rank)
        except OSError as error:
            self.drop(target)
            raise InfrastructureError(f"cannot hand over adapter {source}: {error.strerror}") from error
        except (InfrastructureError, UserError):
            self.drop(target)
            raise
        return target

    def put_weights(self, model: Any) -> Path:
        """Write full weights of a model into a folder of its own."""
        self._num_put += 1
        target = self.root / str(self._num_put)
        model.save_pretrained(target)
        return target

    def drop(self, folder: Path) -> None:
        """Forget one version."""
        shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """Delete everything."""
        shutil.rmtree(self.root, ignore_errors=True)


def check_adapter(folder: Path, *, shown: Path | None = None, max_rank: int | None = None) -> None:
    """Check every number of an adapter: a damaged one has undefined effects inside an engine.

    Raises:
        InfrastructureError: unreadable, empty, not finite, or not a LoRA; names `shown` (or the folder).
        UserError: its rank is above `max_rank`.
    """
    name = shown or folder
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        if not isinstance(config, dict) or config.get("peft_type") != "LORA":
            raise InfrastructureError(f"adapter {name}: {CONFIG} does not describe a LoRA")
        with safe_open(folder / WEIGHTS, framework="pt") as file:
            keys = list(file.keys())
            if not any("lora_A" in key for key in keys):
                raise InfrastructureError(f"adapter {name}: {WEIGHTS} holds no LoRA weights")
            for key in keys:
                if not bool(torch.isfinite(file.get_tensor(key)).all()):
                    raise InfrastructureError(f"adapter {name}: {key} is not finite")
    except (OSError, ValueError, SafetensorError) as error:
        raise InfrastructureError(f"adapter {name} is damaged: {error}") from error
    rank = max([int(config["r"]), *(int(rank) for rank in (config.get("rank_pattern") or {}).values())])
    if max_rank is not None and rank > max_rank:
        raise UserError(
            f"adapter {name} has rank {rank}, the engine takes {max_rank};"
            f" set engine.vllm.max_lora_rank to {rank} or more"
        )


def _sweep(parent: Path) -> None:
    """Delete what killed processes of this machine left."""
    for folder in parent.glob(f"{PREFIX}*-*"):
        if not Path("/proc", folder.name.removeprefix(PREFIX).partition("-")[0]).exists():
            shutil.rmtree(folder, ignore_errors=True)


def _write_live(model: Any, adapter: str, target: Path) -> None:
    """Write the adapter of a PEFT model into a folder of its own, straight from the weights in training."""
    from peft import get_peft_model_state_dict

    state = get_peft_model_state_dict(model, adapter_name=adapter, save_embedding_layers=False)
    tensors = {key: value.detach().to("cpu").contiguous() for key, value in state.items()}
    save_file(tensors, target / WEIGHTS, metadata={"format": "pt"})
    config = model.peft_config[adapter]
    config.save_pretrained(str(target))

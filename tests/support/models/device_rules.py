"""NCCL's rules for collectives, checked under gloo on a CPU.

On GPUs a collective of GPU tensors goes over NCCL and one of CPU tensors over gloo: ranks that bring tensors
of different kinds wait for ever. Here tensors that would lie on the GPU are marked: the models' own weights,
and all that is computed from a marked tensor. torch.distributed itself compares order and shapes over the
ranks (TORCH_DISTRIBUTED_DEBUG=DETAIL, see rank_launch.py).
"""

from collections.abc import Iterable
from typing import Any

from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

COLLECTIVES = ("c10d", "_c10d_functional", "c10d_functional")
OUTPUT_FIRST = ("_allgather", "allgather", "all_gather", "_reduce_scatter", "reduce_scatter", "scatter")


class DeviceRules(TorchDispatchMode):
    """While this is entered, tensors are followed; `calls` lists name, device and shapes of collectives."""

    def __init__(self, models: Iterable[Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[tuple[str, str, list[list[int]]]] = []
        self._on_gpu: dict[int, StorageWeakRef] = {}
        for model in models:
            for tensor in (*model.parameters(), *model.buffers()):
                self._mark(tensor.to_local() if isinstance(tensor, DTensor) else tensor)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # it calls again with its local tensors
        kwargs = kwargs or {}
        given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
        name = func._schema.name.partition("::")[2]
        if func.namespace in COLLECTIVES and "wait" not in name:
            self._note(name, given)
        if name == "cat":
            self._find_device(name, [one for one in given if one.numel()])
        result = func(*args, **kwargs)
        if name != "copy_" and any(self._is_on_gpu(one) for one in given):  # that one moves between devices
            by_name = {
                argument.name: value for argument, value in zip(func._schema.arguments, args, strict=False)
            }
            written = [
                (by_name | kwargs).get(argument.name)
                for argument in func._schema.arguments
                if argument.alias_info is not None and argument.alias_info.is_write
            ]
            for one in tree_leaves((result, written)):
                if isinstance(one, Tensor):
                    self._mark(one)
        return result

    def _note(self, name: str, given: list[Tensor]) -> None:
        """Note a collective; the place of a result that it makes stands where its input does."""
        shapes = [list(one.shape) for one in given]
        if name.startswith(OUTPUT_FIRST):
            device = "gpu" if any(map(self._is_on_gpu, given)) else "cpu"
        else:
            device = self._find_device(name, given)
        self.calls.append((name, device, shapes))

    def _find_device(self, name: str, given: list[Tensor]) -> str:
        """The device of all these tensors.

        Raises:
            RuntimeError: there are two.
        """
        devices = {"gpu" if self._is_on_gpu(one) else "cpu" for one in given} or {"cpu"}
        if len(devices) > 1:
            raise RuntimeError(f"{name} is given tensors on the GPU and on the host")
        return devices.pop()

    def _is_on_gpu(self, tensor: Tensor) -> bool:
        known = self._on_gpu.get(tensor.untyped_storage()._cdata)
        return known is not None and not known.expired()  # type: ignore[no-untyped-call]

    def _mark(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        self._on_gpu[storage._cdata] = StorageWeakRef(storage)  # type: ignore[no-untyped-call]

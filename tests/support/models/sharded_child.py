"""FSDP2 on CPU processes, for tests: accelerate shards on GPUs only, so gloo is passed off as theirs."""

import sys
from typing import Any

from accelerate import PartialState
from accelerate.utils import DistributedType
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.tensor import DTensor

from training.stages import role_on_ranks, sft

_begin = PartialState.__init__


def _begin_as_gpu(self: PartialState, *args: Any, **kwargs: Any) -> None:
    _begin(self, *args, **kwargs)
    if self.distributed_type == DistributedType.MULTI_CPU:
        self.distributed_type = DistributedType.MULTI_XPU


def _gather_sharded(model: nn.Module, **options: Any) -> Any:
    assert all(isinstance(parameter, DTensor) for parameter in model.parameters()), "not sharded"
    return get_model_state_dict(model, **options)


if __name__ == "__main__":
    PartialState.__init__ = _begin_as_gpu
    setattr(sft, "get_model_state_dict", _gather_sharded)  # noqa: B010 (not exported there)
    sys.exit(role_on_ranks.main(sys.argv[1:]))

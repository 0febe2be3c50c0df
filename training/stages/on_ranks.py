"""A stage on several worker processes of this machine: where all roles share weights, or play jointly.

On a CPU alone: processes of several GPUs are started by torchrun (`training/stages/marl_on_ranks.py`).
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.state import AcceleratorState, GradientState

from training.config.run_config import RunConfig
from training.learner.fsdp import join_ranks, leave_ranks
from training.models.adapters import list_owners


def train_on_ranks(train: Callable[..., None], path: Path, *args: Any) -> None:
    """Call `train(path, *args, ranks)` as the rank that this process's variables say, or alone.

    After an error the group stays open: the others wait in it until whoever started them ends them.
    """
    if "RANK" not in os.environ:
        return train(path, *args)
    ranks = join_ranks()
    PartialState(cpu=True)
    train(path, *args, ranks)
    leave_ranks(ranks)
    GradientState._reset_state()
    AcceleratorState._reset_state(reset_partial_state=True)
    return None


def count_role_ranks(config: RunConfig) -> int:
    """Workers that share the batches of a role's stage: several where one model plays all roles."""
    return count_joint_ranks(config) if len(list_owners(config.model)) == 1 else 1


def count_joint_ranks(config: RunConfig) -> int:
    """Workers that share the cases of a joint step."""
    return 1 if torch.cuda.is_available() else config.num_ranks

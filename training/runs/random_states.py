"""The states of all random generators of this process: Python's, numpy's, torch's on CPU and GPU."""

import random
from typing import Any

import numpy as np
import torch


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

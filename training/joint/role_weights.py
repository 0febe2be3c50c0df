"""Weights and optimizer states of roles, gathered from all ranks where they are sharded."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from training.learner.fsdp import place_like, whole
from training.models.adapters import named_role_parameters
from training.runs.checkpoints import DamagedCheckpointError


def load_role_weights(model: nn.Module, role: str, stored: Mapping[str, torch.Tensor]) -> None:
    """Copy a role's weights into its model.

    Raises:
        DamagedCheckpointError: other names or shapes.
    """
    places = dict(named_role_parameters(model, role))
    if places.keys() != stored.keys() or any(places[n].shape != stored[n].shape for n in places):
        raise DamagedCheckpointError(f"the checkpoint's weights of {role} are of another model")
    with torch.no_grad():
        for name, place in places.items():
            place.copy_(place_like(stored[name], place))


def full_weights(model: nn.Module, role: str) -> dict[str, torch.Tensor]:
    """The role's weights, gathered from all ranks where they are sharded."""
    return {name: whole(parameter.detach()) for name, parameter in named_role_parameters(model, role)}


def full_state(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The optimizer's state, gathered from all ranks where it is sharded."""
    state = optimizer.state_dict()
    moments = {
        place: {key: whole(value) if isinstance(value, torch.Tensor) else value for key, value in one.items()}
        for place, one in state["state"].items()
    }
    return {"state": moments, "param_groups": state["param_groups"]}


def load_full_state(optimizer: torch.optim.Optimizer, stored: Mapping[str, Any]) -> None:
    """Go on from `full_state`, sharded as this optimizer's parameters are."""
    places = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    moments = {
        place: {
            key: place_like(value, places[int(place)]) if getattr(value, "ndim", 0) else value
            for key, value in one.items()
        }
        for place, one in stored["state"].items()
    }
    optimizer.load_state_dict({"state": moments, "param_groups": stored["param_groups"]})

"""Weights of roles; where they are sharded, each rank's part of them."""

from collections.abc import Mapping

import torch
from torch import nn

from training.models.adapters import named_role_parameters
from training.runs.checkpoints import DamagedCheckpointError
from training.runs.state_files import Shard, load_like

Stored = Mapping[str, torch.Tensor | Shard]


def role_weights(model: nn.Module, role: str) -> dict[str, torch.Tensor]:
    """The role's weights as they are held here, not copied."""
    return {name: parameter.detach() for name, parameter in named_role_parameters(model, role)}


def place_role_weights(model: nn.Module, role: str, stored: Stored) -> dict[str, torch.Tensor]:
    """Stored weights of a role, sharded as its model is.

    Raises:
        DamagedCheckpointError: other names or shapes.
    """
    places = role_weights(model, role)
    if places.keys() != stored.keys() or any(places[n].shape != tuple(stored[n].shape) for n in places):
        raise DamagedCheckpointError(f"the checkpoint's weights of {role} are of another model")
    return load_like(stored, places)


def load_role_weights(model: nn.Module, role: str, stored: Stored) -> None:
    """Copy a role's weights into its model.

    Raises:
        DamagedCheckpointError: other names or shapes.
    """
    placed = place_role_weights(model, role, stored)
    with torch.no_grad():
        for name, parameter in named_role_parameters(model, role):
            parameter.copy_(placed[name])

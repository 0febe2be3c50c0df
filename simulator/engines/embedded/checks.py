"""Refuses what the embedded engine cannot use: prompts that a model cannot read, damaged adapters."""

from typing import Any

import torch

from roles.errors import InfrastructureError
from simulator.engines.base import CompletionRequest


def check_prompt(request: CompletionRequest, config: Any) -> None:
    """Refuse a prompt that the model cannot read: it would end the step of all rows.

    Raises:
        InfrastructureError: empty, longer than the model's positions, or an id that it does not have.
    """
    ids, longest = request.prompt_ids, config.max_position_embeddings
    if not ids:
        raise InfrastructureError(f"prompt of {request.policy} is empty")
    if len(ids) >= longest:
        raise InfrastructureError(f"prompt of {len(ids)} tokens: the model reads {longest - 1} at most")
    if min(ids) < 0 or max(ids) >= config.vocab_size:
        raise InfrastructureError(
            f"prompt holds an id that the model does not have (0 to {config.vocab_size - 1})"
        )


def check_finite(model: Any, adapter: str, version: str) -> None:
    """Raise InfrastructureError where a weight of the adapter is not finite."""
    for name, parameter in model.named_parameters():
        if "lora_" in name and f".{adapter}." in name and not bool(torch.isfinite(parameter).all()):
            raise InfrastructureError(f"adapter of {version} holds numbers that are not finite: {name}")

"""Refuses what the embedded engine cannot use: prompts that a model cannot read, damaged adapters."""

from dataclasses import replace
from typing import Any

import torch

from roles.errors import InfrastructureError
from simulator.engines.base import CompletionRequest


def check_prompt(request: CompletionRequest, config: Any) -> None:
    """Refuse a prompt that the model cannot read: it would end the step of all rows.

    Raises:
        InfrastructureError: empty, longer than the model's positions, or an id that it does not have.
    """
    ids, longest = request.prompt_ids, count_positions(config)
    if not ids:
        raise InfrastructureError(f"prompt of {request.policy} is empty")
    if longest is not None and len(ids) >= longest:
        raise InfrastructureError(f"prompt of {len(ids)} tokens: the model reads {longest - 1} at most")
    if min(ids) < 0 or max(ids) >= config.vocab_size:
        raise InfrastructureError(
            f"prompt holds an id that the model does not have (0 to {config.vocab_size - 1})"
        )


def within_positions(request: CompletionRequest, config: Any) -> CompletionRequest:
    """The request with no more tokens to sample than the model has positions left: it ends with "length"."""
    longest = count_positions(config)
    if longest is None:
        return request
    most = min(request.sampling.max_completion_tokens, longest - len(request.prompt_ids))
    return replace(request, sampling=replace(request.sampling, max_completion_tokens=most))


def count_positions(config: Any) -> int | None:
    """Return the tokens of the longest text that a model reads; None: without an end."""
    return getattr(config, "max_position_embeddings", None)


def check_finite(model: Any, adapter: str, version: str) -> None:
    """Raise InfrastructureError where a weight of the adapter is not finite."""
    for name, parameter in model.named_parameters():
        if "lora_" in name and f".{adapter}." in name and not bool(torch.isfinite(parameter).all()):
            raise InfrastructureError(f"adapter of {version} holds numbers that are not finite: {name}")

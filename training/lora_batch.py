"""The adapters of all roles in one pass: every token goes through the base once and through its role's LoRA.

In a packed line the roles' tokens stand in one stretch each, so that a layer's addition is one pair of small
products per role. PEFT's own mixed batches are for inference only; these have gradients, to the very
parameters that PEFT holds, so that saving, loading and serving stay PEFT's.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from peft.tuners.lora import Linear as LoraLinear
from torch import Tensor, nn

from simulator.engines.adapter_names import adapter_of
from training.packing import RowBatch

Stretches = Mapping[str, tuple[int, int]]  # adapter -> first token and end


@contextmanager
def routed_roles(model: nn.Module, batch: RowBatch) -> Iterator[None]:
    """While this is open, each token of the batch passes through the adapter of its role, and trains it.

    Keep it open until the backward pass is done: checkpointed layers are computed again there. Models
    without adapters are left as they are.

    Raises:
        ValueError: an adapter's tokens do not stand together.
    """
    layers = [module for module in model.modules() if isinstance(module, LoraLinear)]
    if not layers:
        yield
        return
    stretches = _stretches(model, batch)
    for name, parameter in model.named_parameters():
        if any(f".{adapter}." in name for adapter in stretches) and "lora_" in name:
            parameter.requires_grad_(torch.is_grad_enabled() or parameter.requires_grad)
    for layer in layers:
        _route(layer, stretches)
    try:
        yield
    finally:
        for layer in layers:
            layer.__dict__.pop("forward", None)


def _stretches(model: nn.Module, batch: RowBatch) -> Stretches:
    """Of each adapter the tokens that it speaks for; roles that share one stand side by side."""
    stretches: dict[str, tuple[int, int]] = {}
    for role, (start, stop) in batch.role_tokens.items():
        name = adapter_of(model, role)
        assert name is not None
        first, end = stretches.get(name, (start, start))
        if end != start:
            raise ValueError(f"tokens of adapter {name} do not stand together")
        stretches[name] = (first, stop)
    return stretches


def _route(layer: Any, stretches: Stretches) -> None:
    def forward(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return _routed_forward(layer, x, stretches)

    layer.forward = forward


def _routed_forward(layer: Any, x: Tensor, stretches: Stretches) -> Tensor:
    """Base of all tokens, plus B A x * scale of each adapter on its stretch; x is (lines, tokens, width)."""
    result: Tensor = layer.base_layer(x)
    parts = []
    for name, (start, stop) in stretches.items():
        a, b = layer.lora_A[name], layer.lora_B[name]
        taken = x[:, start:stop].to(a.weight.dtype)
        parts.append((b(a(taken)) * layer.scaling[name]).to(result.dtype))
    return result + torch.cat(parts, 1)

"""Applies the adapters of several policies in one pass: every row goes through the base and its own LoRA.

A layer's adapters stand side by side in one pair of products, A of all and B of all; between the two, what
is not of a row's own adapter is zero. For sampling only: these tensors are copies and have no gradients.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils import AuxiliaryTrainingWrapper
from torch import Tensor, nn


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    """One linear layer with the adapters that it has."""

    module: Any
    first: Tensor  # A, (sum of ranks, in)
    second: Tensor  # B times its scale, (out, sum of ranks)
    owner: Tensor  # (sum of ranks,): place of the adapter that a component belongs to
    ranks: tuple[tuple[int, int], ...]  # (place, rank) of each adapter: the same where `owner` is


def can_stack(model: nn.Module) -> bool:
    """Return whether all that the adapters change is plain LoRA on linear layers, not merged."""
    if not isinstance(model, PeftModel):
        return False
    for module in model.modules():
        if isinstance(module, AuxiliaryTrainingWrapper):
            return False
        if not isinstance(module, BaseTunerLayer):
            continue
        if not isinstance(module, LoraLayer) or not isinstance(module.get_base_layer(), nn.Linear):
            return False
        if module.merged or module.lora_variant or any(module.lora_bias.values()):
            return False
    return True


class AdapterStack:
    """The weights of some adapters of a model, as they were when this was made."""

    def __init__(self, model: nn.Module, adapters: Sequence[str]) -> None:
        """`adapters`: by their places in this list rows say which is theirs."""
        self.adapters = list(adapters)
        self._modules = [module for module in model.modules() if isinstance(module, LoraLayer)]
        with torch.no_grad():
            self._layers = self._stack_layers()
        self._owners = {layer.ranks: layer.owner for layer in self._layers}

    @torch.no_grad()
    def refresh(self, adapters: Sequence[str]) -> bool:
        """Take the weights of now into the same tensors: recorded steps stay good. False if others."""
        now = self._stack_layers()
        if list(adapters) != self.adapters or any(
            new.ranks != old.ranks for new, old in zip(now, self._layers, strict=True)
        ):
            return False
        for new, old in zip(now, self._layers, strict=True):
            old.first.copy_(new.first)
            old.second.copy_(new.second)
        return True

    def _stack_layers(self) -> list[_Layer]:
        return [_stack(module, self.adapters) for module in self._modules]

    @contextmanager
    def route(self, places: Tensor) -> Iterator[None]:
        """While this is open, token j of row i passes through adapter `places[i, j]`.

        `places`: (rows, tokens) int, or (rows, 1) where all tokens of a row have one.
        """
        others: dict[Any, Tensor] = {}
        if len(self.adapters) > 1:  # else every row's is the one that there is
            others = {ranks: owner != places[..., None] for ranks, owner in self._owners.items()}
        for layer in self._layers:
            _route(layer, others.get(layer.ranks), len(places))
        try:
            yield
        finally:
            for layer in self._layers:
                layer.module.__dict__.pop("forward", None)


def _stack(module: Any, adapters: Sequence[str]) -> _Layer:
    """Stack the layer's adapters; a row without one of them passes through the base alone.

    They are kept in the base's precision, in which the learner multiplies with them.
    """
    base = module.get_base_layer()
    device, present = base.weight.device, [name for name in adapters if name in module.lora_A]
    first = [module.lora_A[name].weight for name in present]
    second = [module.lora_B[name].weight * module.scaling[name] for name in present]
    if base.weight.is_floating_point():
        first, second = ([one.to(base.weight.dtype) for one in pair] for pair in (first, second))
    ranks = torch.tensor([len(one) for one in first], dtype=torch.long)
    places = torch.tensor([adapters.index(name) for name in present], dtype=torch.long)
    return _Layer(
        module=module,
        first=torch.cat(first) if first else torch.zeros(0, base.in_features, device=device),
        second=torch.cat(second, 1) if second else torch.zeros(base.out_features, 0, device=device),
        owner=places.repeat_interleave(ranks).to(device),
        ranks=tuple(zip(places.tolist(), ranks.tolist(), strict=True)),
    )


def _route(layer: _Layer, is_other: Tensor | None, num_rows: int) -> None:
    def forward(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """x is (rows, tokens, width), or (rows * tokens, width) where a model lays its rows end to end."""
        result: Tensor = layer.module.base_layer(x)
        own = nn.functional.linear(x.to(layer.first.dtype), layer.first)
        if is_other is not None and layer.ranks:
            own = own.view(num_rows, -1, own.shape[-1]).masked_fill(is_other, 0).view(own.shape)
        if result.dtype == own.dtype and (result.is_cuda or result.dtype != torch.float32):
            added = torch.addmm(result.flatten(0, -2), own.flatten(0, -2), layer.second.T)
            return added.view_as(result)
        return result + nn.functional.linear(own, layer.second).to(result.dtype)

    layer.module.__dict__["forward"] = forward  # past nn.Module's own attribute setter, which is slow

"""The adapters of all roles in one pass: every token goes through the base once and through its role's LoRA.

In a packed line the roles' tokens stand in one stretch each, so that a layer's addition is one pair of small
products per role. PEFT's own mixed batches are for inference only; these have gradients, to the very
parameters that PEFT holds, so that saving, loading and serving stay PEFT's.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from roles.errors import UserError
from simulator.engines.adapter_names import START, adapter_of
from training.learner.fsdp import is_sharded
from training.learner.rows import RowBatch

Stretches = Mapping[str, tuple[int, int]]  # adapter -> first token and end


@contextmanager
def routed_roles(
    model: nn.Module, batch: RowBatch, *, prefix: str = "", adapter: str | None = None
) -> Iterator[None]:
    """While this is open, each token of the batch passes through the adapter of its role, and trains it.

    Keep it open until the backward pass is done: checkpointed layers are computed again there. Models
    without adapters are left as they are. `prefix`: before the adapter's name, START for what it was.
    `adapter`: of all tokens, whatever their roles.
    In a sharded model every adapter takes part, most with no token: ranks reduce the gradients of the same
    weights, whichever roles they have.

    Raises:
        UserError: adapters on something else than linear layers.
        ValueError: an adapter's tokens do not stand together.
    """
    layers = _find_layers(model)
    if not layers:
        yield
        return
    if adapter is not None:
        stretches = {adapter: (0, batch.token_ids.shape[1])}
    else:
        stretches = {prefix + name: place for name, place in _stretches(model, batch).items()}
        if is_sharded(model):
            stretches |= {name: (0, 0) for name in _adapters(model, prefix) if name not in stretches}
    for name, parameter in model.named_parameters():
        if any(f".{adapter}." in name for adapter in stretches) and "lora_" in name:
            parameter.requires_grad_(torch.is_grad_enabled() or parameter.requires_grad)
    before = [layer.__dict__.get("forward") for layer in layers]  # a route that this one stands in for
    for layer in layers:
        _route(layer, stretches, batch.token_ids.shape)
    try:
        yield
    finally:
        for layer, forward in zip(layers, before, strict=True):
            del layer.__dict__["forward"]
            if forward is not None:
                layer.forward = forward


def _adapters(model: Any, prefix: str) -> list[str]:
    """The adapters that learn, or with the prefix START those that are kept."""
    names = [name for name in model.peft_config if not name.startswith(START)]
    return [prefix + name for name in names]


def _find_layers(model: nn.Module) -> list[Any]:
    """Every layer with adapters, quantised ones among them."""
    found = [(name, module) for name, module in model.named_modules() if isinstance(module, LoraLayer)]
    for name, module in found:
        if not isinstance(module.get_base_layer(), nn.Linear | Conv1D):
            kind = type(module.get_base_layer()).__name__
            raise UserError(
                f"joint training takes adapters on linear layers; {name} is of kind {kind}:"
                " set model.lora_targets to such layers, as in [q_proj, k_proj, v_proj, o_proj]"
            )
    return [module for _, module in found]


def _stretches(model: nn.Module, batch: RowBatch) -> Stretches:
    """Of each adapter the tokens that it speaks for; roles that share one stand side by side."""
    stretches: dict[str, tuple[int, int]] = {}
    for role, (start, stop) in batch.role_tokens.items():
        name = adapter_of(model, role) if role else _adapters(model, "")[0]  # no role: an idle pass
        assert name is not None
        first, end = stretches.get(name, (start, start))
        if end != start:
            raise ValueError(f"tokens of adapter {name} do not stand together")
        stretches[name] = (first, stop)
    return stretches


def _route(layer: Any, stretches: Stretches, shape: torch.Size) -> None:
    def forward(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return _routed_forward(layer, x, stretches, *shape)

    layer.forward = forward


def _routed_forward(layer: Any, x: Tensor, stretches: Stretches, lines: int, tokens: int) -> Tensor:
    """Base of all tokens, plus B A x * scale of each adapter on its stretch.

    x is (lines, tokens, width), or (lines * tokens, width) where a model lays its lines end to end.

    Raises:
        UserError: the layer is given other tokens than those of the batch.
    """
    base: Tensor = layer.base_layer(x)
    if x.shape[:-1].numel() != lines * tokens:
        raise UserError(
            f"joint training takes adapters on layers that see every token; one sees {tuple(x.shape[:-1])}"
            f" of {lines} x {tokens}: set model.lora_targets"
        )
    if lines > 1 and sum(stop > start for start, stop in stretches.values()) > 1:
        raise ValueError("several adapters in one batch need a packed line")
    lengths = tuple(lines * (stop - start) for start, stop in stretches.values())
    scales = tuple(float(layer.scaling[name]) for name in stretches)
    pairs = [one[name].weight for name in stretches for one in (layer.lora_A, layer.lora_B)]
    added: Tensor = _AddAdapters.apply(  # type: ignore[no-untyped-call]
        x.flatten(0, -2), base.flatten(0, -2), lengths, scales, *pairs
    )
    return added.view_as(base)


class _AddAdapters(torch.autograd.Function):
    """base + scale * B A x, stretch after stretch of the tokens; (tokens, width) both.

    Slices of a line would cost a zeroed line each in the backward pass; here every stretch is read and
    written in place. Products are in the precision of the tokens (sums in float32 inside the kernel): a
    bfloat16 line is not copied into float32 seven times a layer.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, base: Tensor, lengths: tuple[int, ...], scales: tuple[float, ...], *pairs: Tensor
    ) -> Tensor:
        result = torch.empty_like(base)
        dtype = x.dtype
        inner: list[Tensor] = []  # A x of each stretch
        stretches = zip(*(one.split_with_sizes(lengths) for one in (x, base, result)), strict=True)
        for number, (taken, below, place) in enumerate(stretches):
            a, b = (one.to(dtype) for one in pairs[2 * number : 2 * number + 2])
            inner.append(taken.to(dtype) @ a.T)
            if dtype == base.dtype:
                torch.addmm(below, inner[-1], b.T, alpha=scales[number], out=place)
            else:
                torch.add(below, (inner[-1] @ b.T).to(base.dtype), alpha=scales[number], out=place)
        ctx.save_for_backward(x, *inner, *pairs)
        ctx.lengths, ctx.scales, ctx.dtype = lengths, scales, dtype
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, *saved = ctx.saved_tensors
        inner, pairs = saved[: len(ctx.lengths)], saved[len(ctx.lengths) :]
        to_x = torch.empty_like(x, dtype=ctx.dtype) if ctx.needs_input_grad[0] else None
        to_pairs: list[Tensor | None] = []
        start = 0
        for number, (length, scale) in enumerate(zip(ctx.lengths, ctx.scales, strict=True)):
            part = slice(start, start + length)
            start += length
            pair = pairs[2 * number : 2 * number + 2]
            a, b = (one.to(ctx.dtype) for one in pair)
            to_result = grad[part].to(ctx.dtype)
            to_inner = (to_result @ b).mul_(scale)
            needs_a, needs_b = ctx.needs_input_grad[4 + 2 * number : 6 + 2 * number]
            to_pairs.append((to_inner.T @ x[part].to(ctx.dtype)).to(pair[0].dtype) if needs_a else None)
            to_pairs.append((to_result.T @ inner[number].mul(scale)).to(pair[1].dtype) if needs_b else None)
            if to_x is not None:
                torch.mm(to_inner, a, out=to_x[part])
        return None if to_x is None else to_x.to(x.dtype), grad, None, None, *to_pairs

"""Muon on the 2-D weights inside the layers, AdamW on embeddings, norms and everything else.

Source: Keller Jordan et al., Muon (2024). torch.optim.Muon iterates one matrix at a time in bfloat16, which
took 57 % of a training step on a CPU without bfloat16 units; here equal shapes are batched, in float32.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from training.learner.ranks import ONE_RANK, Ranks
from training.runs.resume import load_optimizer

_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)


def orthogonalize(matrices: Tensor, steps: int = 5) -> Tensor:
    """The nearest (semi-)orthogonal matrices, roughly: singular values end between about 0.7 and 1.2.

    Shape (count, rows, columns) in and out. Source: quintic Newton-Schulz iteration of Muon.
    """
    a, b, c = _NEWTON_SCHULZ
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    result: Tensor = x.mT if tall else x
    return result


class Muon(Optimizer):
    """Nesterov momentum, orthogonalised per matrix, scaled by sqrt(max(1, rows / columns)).

    Data-parallel ranks have the same gradients: each orthogonalises its share of the matrices.
    """

    def __init__(
        self, params: list[nn.Parameter], *, lr: float, momentum: float = 0.95, ranks: Ranks = ONE_RANK
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})
        self._ranks = ranks

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[nn.Parameter]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    by_shape.setdefault(parameter.shape, []).append(parameter)
            for shape, parameters in by_shape.items():
                momenta = torch.stack([self._momentum(p, group["momentum"]) for p in parameters])
                updates = self._ranks.share_work(orthogonalize, momenta)
                scale = group["lr"] * max(1.0, shape[0] / shape[1]) ** 0.5
                for parameter, update in zip(parameters, updates, strict=True):
                    parameter.sub_(update, alpha=scale)

    def _momentum(self, parameter: nn.Parameter, momentum: float) -> Tensor:
        gradient = parameter.grad
        assert gradient is not None
        buffer = self.state[parameter].setdefault("momentum", torch.zeros_like(parameter))
        buffer.lerp_(gradient, 1 - momentum)
        return gradient.lerp(buffer, momentum)


class CombinedOptimizer(Optimizer):
    """Several optimizers over disjoint parameters, stepped and saved as one."""

    def __init__(self, optimizers: list[Optimizer]) -> None:
        groups = [group for optimizer in optimizers for group in optimizer.param_groups]
        super().__init__([parameter for group in groups for parameter in group["params"]], {})
        self.optimizers = optimizers
        self.param_groups = groups  # shared with the parts, so that a scheduler reaches them

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for optimizer in self.optimizers:
            optimizer.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        return {"optimizers": [optimizer.state_dict() for optimizer in self.optimizers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for optimizer, state in zip(self.optimizers, state_dict["optimizers"], strict=True):
            load_optimizer(optimizer, state)
        self.param_groups = [group for optimizer in self.optimizers for group in optimizer.param_groups]


def muon_with_adamw(
    model: nn.Module, *, muon_learning_rate: float, learning_rate: float, ranks: Ranks = ONE_RANK
) -> CombinedOptimizer:
    """Muon for matrices of the transformer layers, AdamW for the rest; `ranks`: that train together."""
    matrices: list[nn.Parameter] = []
    rest: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            is_matrix = parameter.ndim == 2 and "embed" not in name and "lm_head" not in name
            (matrices if is_matrix else rest).append(parameter)
    optimizers: list[Optimizer] = []
    if matrices:
        optimizers.append(Muon(matrices, lr=muon_learning_rate, ranks=ranks))
    if rest:  # an adapter may have matrices only
        optimizers.append(AdamW(rest, lr=learning_rate, weight_decay=0.0, betas=(0.9, 0.95)))
    return CombinedOptimizer(optimizers)

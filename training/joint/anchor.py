"""Supervised anchor: adds the loss on demonstrations of a role's own tasks while its own score is down."""

from collections.abc import Callable, Sequence

from torch import nn

from training.config.marl_config import MarlConfig
from training.data.demonstrations import TokenRow
from training.learner.fsdp import compute_device
from training.learner.lora_batch import routed_roles
from training.learner.packing import make_batches
from training.learner.rows import TrainingRow
from training.learner.token_logprobs import token_logprobs

AnchorRows = Callable[[str, int], Sequence[TokenRow]]  # (role, step) -> demonstrations


def backward_anchor(
    model: nn.Module, demonstrations: Sequence[TokenRow], role: str, config: MarlConfig, share: float = 1.0
) -> float:
    """Add the gradient of anchor_coefficient times the mean of -log p over own tokens; the loss.

    `share`: of it that this rank adds, where the ranks' gradients of the same rows are summed.
    """
    rows = [
        TrainingRow(
            role=role,
            token_ids=one.token_ids,
            loss_mask=one.loss_mask,
            sampling_logprobs=(0.0,) * len(one.token_ids),
            advantage=1.0,
        )
        for one in demonstrations
    ]
    num_tokens = sum(row.num_own for row in rows)
    device = compute_device(model)
    total = 0.0
    batches = make_batches(
        rows, layout=config.memory.row_layout, max_tokens=config.memory.micro_batch_tokens, device=device
    )
    for batch in batches:
        with routed_roles(model, batch):
            logprobs, _ = token_logprobs(model, batch, logit_rows=config.memory.logit_rows)
            loss = -share * config.guards.anchor_coefficient * logprobs.sum() / num_tokens
            loss.backward()  # type: ignore[no-untyped-call]
        total += float(loss.detach())
    return total

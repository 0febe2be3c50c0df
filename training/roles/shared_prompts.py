"""Log-probabilities of a trainer's padded batch with every common prompt computed once, for GRPO's groups.

A group's trajectories begin with one prompt, often most of their tokens: they are laid end to end after it
(training/learner/packing.py), and values and gradients are those of the padded batch.
"""

from collections.abc import Sequence
from functools import wraps
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from training.learner.packing import make_batches
from training.learner.rows import TrainingRow
from training.learner.token_logprobs import token_logprobs

LOGIT_ROWS = 512  # tokens whose logits are held at once


class SharedPrompts:
    """To be mixed in before a GRPO trainer: its forward pass, or the same numbers with shared prompts."""

    shares_prompts: bool = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        trainer: Any = self
        if trainer.args.world_size > 1:
            _take_shared_prompts(trainer.model)

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Tensor,
        attention_mask: Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        **options: Any,
    ) -> Any:
        trainer: Any = self
        if not self.shares_prompts:
            return super()._get_per_token_logps_and_entropies(  # type: ignore[misc]
                model, input_ids, attention_mask, logits_to_keep, batch_size, **options
            )
        found = []
        size = batch_size or len(input_ids)
        for start in range(0, len(input_ids), size):
            ids, mask = input_ids[start : start + size], attention_mask[start : start + size]
            with trainer.accelerator.autocast():
                given = (ids, mask, logits_to_keep, trainer.temperature)
                inner = trainer.accelerator.unwrap_model(model)
                if inner is model or not torch.is_grad_enabled():
                    found.append(completion_logprobs(inner, *given))
                else:
                    found.append(model(shared_prompts=given))  # through its forward: it sums gradients then
        logprobs, entropies = (torch.cat(one) for one in zip(*found, strict=True))
        return logprobs, entropies, None


def _take_shared_prompts(model: Any) -> None:
    """Let `model(shared_prompts=...)` be `completion_logprobs`; all else goes on to its own forward."""
    forward = model.forward

    @wraps(forward)
    def forward_or_share(*args: Any, shared_prompts: Any = None, **kwargs: Any) -> Any:
        if shared_prompts is None:
            return forward(*args, **kwargs)
        return completion_logprobs(model, *shared_prompts)

    model.forward = forward_or_share


def completion_logprobs(
    model: nn.Module,
    input_ids: Int[Tensor, "rows width"],
    attention_mask: Int[Tensor, "rows width"],
    num_completion: int,
    temperature: float,
) -> tuple[Float[Tensor, "rows completion"], Float[Tensor, "rows completion"]]:
    """Log-probabilities (with gradient) and entropies (without) at the last `num_completion` places.

    Padding, on the left of prompts and on the right of completions, gets 0. All rows are one forward pass.
    """
    rows = [_make_row(*pair, num_completion) for pair in zip(input_ids, attention_mask, strict=True)]
    order = _order_by_prompt(rows)
    total = sum(len(row.token_ids) for row in rows)
    (batch,) = make_batches(
        [rows[i] for i in order], layout="shared_prompt", max_tokens=total, device=input_ids.device
    )
    values, entropies = token_logprobs(model, batch, temperature=temperature, logit_rows=LOGIT_ROWS)
    places = torch.cat(
        [
            i * num_completion + torch.nonzero(attention_mask[i, -num_completion:])[:, 0].to(values.device)
            for i in order
        ]
    )
    filled = [
        torch.zeros(len(rows) * num_completion, dtype=found.dtype, device=found.device).index_put(
            (places,), found
        )
        for found in (values, entropies)
    ]
    return filled[0].view(len(rows), -1), filled[1].view(len(rows), -1)


def _make_row(ids: Tensor, attention: Tensor, num_completion: int) -> TrainingRow:
    prompt = ids[:-num_completion][attention[:-num_completion].bool()].tolist()
    completion = ids[-num_completion:][attention[-num_completion:].bool()].tolist()
    length = len(prompt) + len(completion)
    return TrainingRow(
        role="",
        token_ids=(*prompt, *completion),
        loss_mask=(0,) * len(prompt) + (1,) * len(completion),
        sampling_logprobs=(0.0,) * length,
        advantage=0.0,
    )


def _order_by_prompt(rows: Sequence[TrainingRow]) -> list[int]:
    """Row numbers so that rows of one prompt stand together, prompts in order of appearance."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for number, row in enumerate(rows):
        groups.setdefault(row.token_ids[: row.num_prompt], []).append(number)
    return [number for group in groups.values() for number in group]

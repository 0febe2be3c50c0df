"""Log-probabilities of a trainer's padded batch with every common prompt computed once, for SFT and GRPO.

A group's trajectories begin with one prompt, and all prompts of a role with its mandate, often most of their
tokens: they are laid end to end after it (training/learner/packing.py), and values and gradients are those
of the padded batch. LoRA is applied in the precision of the base (training/learner/lora_batch.py).
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any

import torch
from jaxtyping import Float, Int
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn

from training.data.demonstrations import IGNORED_LABEL
from training.learner.lora_batch import routed_roles
from training.learner.packing import RowBatch, make_batches
from training.learner.rows import TrainingRow
from training.learner.token_logprobs import token_logprobs

LOGIT_ROWS = 512  # tokens whose logits are held at once


class SharedPrompts:
    """To be mixed in before TRL's trainers: their forward pass, or the same numbers with shared prompts."""

    shares_prompts: bool = False
    computed_rows: Tensor | None = None  # (rows,) bool, of the batch at hand; others get 0. None: all

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
        rows = self.computed_rows
        if rows is not None:
            input_ids, attention_mask = input_ids[rows], attention_mask[rows]
        found = []
        size = batch_size or len(input_ids)
        for start in range(0, len(input_ids), size):
            ids, mask = input_ids[start : start + size], attention_mask[start : start + size]
            found.append(
                self._share(completion_logprobs, model, ids, mask, logits_to_keep, trainer.temperature)
            )
        logprobs, entropies = (torch.cat(one) for one in zip(*found, strict=True))
        if rows is not None:
            whole = logprobs.new_zeros(len(rows), logprobs.shape[1])
            logprobs, entropies = (whole.index_put((rows,), one) for one in (logprobs, entropies))
        return logprobs, entropies, None

    def compute_loss(
        self,
        model: Any,
        inputs: Mapping[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Mean negative log-likelihood of the labels, for SFT; the loss of GRPO is its trainer's.

        Of TRL's metrics `num_tokens` is counted on; entropy and accuracy would need more of the logits.
        """
        if not self.shares_prompts or "labels" not in inputs:
            return super().compute_loss(  # type: ignore[misc]
                model, inputs, return_outputs=return_outputs, num_items_in_batch=num_items_in_batch
            )
        trainer: Any = self
        own = (inputs["labels"] != IGNORED_LABEL).long().tolist()
        texts = list(zip(inputs["input_ids"].tolist(), own, strict=True))
        logprobs = self._share(own_logprobs, model, texts)
        count = len(logprobs) if num_items_in_batch is None else num_items_in_batch
        loss = -logprobs.sum() / count
        if num_items_in_batch is not None and trainer.args.average_tokens_across_devices:
            loss = loss * trainer.accelerator.num_processes  # gradients are averaged over them
        tokens = trainer.accelerator.gather_for_metrics(inputs["attention_mask"].sum()).sum()
        trainer._total_train_tokens += int(tokens)
        trainer._metrics["train"]["num_tokens"] = [trainer._total_train_tokens]
        return (loss, {}) if return_outputs else loss

    def _share(self, work: Any, model: Any, *given: Any) -> Any:
        """Call `work(model, *given)`; of a wrapped model through its forward, which sums gradients then."""
        trainer: Any = self
        inner = trainer.accelerator.unwrap_model(model)
        with trainer.accelerator.autocast():
            if inner is model or not torch.is_grad_enabled():
                return work(inner, *given)
            return model(shared_prompts=(work, given))


def _take_shared_prompts(model: Any) -> None:
    """Let `model(shared_prompts=(work, given))` call `work`; all else goes on to its own forward."""
    forward = model.forward

    @wraps(forward)
    def forward_or_share(*args: Any, shared_prompts: Any = None, **kwargs: Any) -> Any:
        if shared_prompts is None:
            return forward(*args, **kwargs)
        work, given = shared_prompts
        return work(model, *given)

    model.forward = forward_or_share


def own_logprobs(
    model: nn.Module, texts: Sequence[tuple[Sequence[int], Sequence[int]]]
) -> Float[Tensor, " own"]:
    """Log-probabilities (with gradient) of the own tokens of texts, in no particular order.

    A text is its token ids and a 1 for each own one. What follows the last own token is not computed.
    """
    rows = []
    for ids, own in texts:
        width = max((place + 1 for place, bit in enumerate(own) if bit), default=0)
        if width:
            rows.append(_make_row(ids[:width], own[:width]))
    device = next(model.parameters()).device
    return _share_prompts(model, rows, device, 1.0)[1] if rows else torch.zeros(0, device=device)


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
    rows = []
    for ids, mask in zip(input_ids, attention_mask.bool(), strict=True):
        prompt = ids[:-num_completion][mask[:-num_completion]].tolist()
        completion = ids[-num_completion:][mask[-num_completion:]].tolist()
        rows.append(_make_row([*prompt, *completion], [0] * len(prompt) + [1] * len(completion)))
    batch, values, entropies = _share_prompts(model, rows, input_ids.device, temperature)
    number_of = {id(row): number for number, row in enumerate(rows)}
    order = [number_of[id(row)] for row in batch.rows]
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


def _share_prompts(
    model: nn.Module, rows: Sequence[TrainingRow], device: torch.device, temperature: float
) -> tuple[RowBatch, Tensor, Tensor]:
    """All rows in one forward pass: how they were laid, log-probabilities and entropies of own tokens."""
    total = sum(len(row.token_ids) for row in rows)
    (batch,) = make_batches(rows, layout="shared_prompt", max_tokens=total, device=device)
    with _routed(model, batch):
        return batch, *token_logprobs(model, batch, temperature=temperature, logit_rows=LOGIT_ROWS)


def _routed(model: Any, batch: RowBatch) -> AbstractContextManager[None]:
    """Let the tokens pass through the active adapter in the base's precision.

    PEFT does it in float32, and is left to it where layers are computed again in the backward pass, which is
    after this context.
    """
    active = getattr(model, "active_adapters", None)
    if not isinstance(model, PeftModel) or not isinstance(active, list) or len(active) != 1:
        return nullcontext()
    layers = [module for module in model.modules() if isinstance(module, LoraLayer)]
    is_plain = all(isinstance(one.get_base_layer(), nn.Linear) and not one.disable_adapters for one in layers)
    if not is_plain or getattr(model, "is_gradient_checkpointing", False):
        return nullcontext()
    return routed_roles(model, batch, adapter=active[0])


def _make_row(ids: Sequence[int], own: Sequence[int]) -> TrainingRow:
    return TrainingRow(
        role="",
        token_ids=tuple(ids),
        loss_mask=tuple(own),
        sampling_logprobs=(0.0,) * len(ids),
        advantage=0.0,
    )

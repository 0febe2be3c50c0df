"""Loss of SFT with every common prompt computed once.

All prompts of a role begin with its mandate, often most of their tokens: texts are laid end to end after it
(training/learner/packing.py), and values and gradients are those of the padded batch. LoRA is applied in the
precision of the base (training/learner/lora_batch.py).
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any

import torch
from jaxtyping import Float
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
    """To be mixed in before TRL's SFTTrainer: its loss, or the same number with shared prompts."""

    shares_prompts: bool = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        trainer: Any = self
        if trainer.args.world_size > 1:
            _take_shared_prompts(trainer.model)

    def compute_loss(
        self,
        model: Any,
        inputs: Mapping[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Mean negative log-likelihood of the labels.

        Of TRL's metrics `num_tokens` is counted on; entropy and accuracy would need more of the logits.
        """
        if not self.shares_prompts:
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
    if not rows:
        return torch.zeros(0, device=device)
    total = sum(len(row.token_ids) for row in rows)
    (batch,) = make_batches(rows, layout="shared_prompt", max_tokens=total, device=device)
    with _routed(model, batch):
        return token_logprobs(model, batch, logit_rows=LOGIT_ROWS)[0]


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

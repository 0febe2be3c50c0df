"""A check of a base before training: row layouts and engine against the model's own forward pass.

Where adapters are trained the base wears two of them meanwhile, and is bare again afterwards.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import product
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor
from transformers import PreTrainedModel

from roles.errors import UserError
from simulator.engines.embedded.engine_check import check_engine, restored
from simulator.engines.embedded.own_pass import long_text, tolerance
from training.config.model_config import ModelConfig
from training.learner.lora_batch import routed_roles
from training.learner.rows import LayoutName, TrainingRow, make_batches, make_plain_row
from training.learner.token_logprobs import token_logprobs
from training.models.adapters import attach

OWN = (9, 4, 6)  # tokens that are compared of each row
NAMES = ("cto", "coo")  # adapters of the checked base
KEYS = "sft.row_layout, grpo.memory.row_layout, marl.memory.row_layout"
_FAULTS = (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError)


def check_base(model: PreTrainedModel, config: ModelConfig, layouts: Iterable[LayoutName]) -> float:
    """Largest difference of a token's log-probability that layouts and engine make, of the whole model.

    Raises:
        UserError: adapters, a layout or the engine do not fit the model, or differ.
    """
    attention = model.config._attn_implementation
    try:
        with _wearing_adapters(model, config) as worn:
            return max(check_layouts(worn, layouts), check_engine(dict.fromkeys(NAMES, worn)))
    finally:
        if model.config._attn_implementation != attention:
            model.set_attn_implementation(attention)


def check_layouts(model: Any, layouts: Iterable[LayoutName]) -> float:
    """Largest difference of a token's log-probability between a layout and the model's own pass.

    The texts are longer than the model's attention window, where that is feasible.

    Raises:
        UserError: the model computes nothing; a layout does not fit it, or differs.
    """
    prompt = long_text(model)
    size = int(model.config.get_text_config().vocab_size)
    texts = [prompt + [(11 * row + 3 * k) % size for k in range(own)] for row, own in enumerate(OWN)]
    masks = [[0] * len(prompt) + [1] * own for own in OWN]
    rows = [make_plain_row(text, mask, NAMES[0]) for text, mask in zip(texts, masks, strict=True)]
    was_training, attention, worst = model.training, model.config._attn_implementation, 0.0
    model.eval()
    try:
        with torch.no_grad():
            try:
                every: list[Tensor] = []  # (own, vocabulary) of each text
                for text in texts:
                    ids = torch.tensor([text], device=model.device)
                    logits = model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1]
                    every.append(logits.float().log_softmax(-1).cpu())
            except _FAULTS as error:
                raise UserError(
                    f"{model.config.model_type} cannot compute its own forward pass ({_first_line(error)}); "
                    "mend its config.json, or use another model"
                ) from error
            model.train()  # as it learns: dropout would show
            for layout in dict.fromkeys(layouts):
                worst = max(worst, _check_layout(model, layout, rows, every))
    finally:
        model.train(was_training)
        if model.config._attn_implementation != attention:
            model.set_attn_implementation(attention)
    return worst


def _check_layout(model: Any, layout: LayoutName, rows: list[TrainingRow], every: list[Tensor]) -> float:
    kind, worst = model.config.model_type, 0.0
    remedy = f"use row_layout padded ({KEYS})" if layout != "padded" else "use another model"
    routes = (False, True) if isinstance(model, PeftModel) else (False,)
    batches = list(make_batches(rows, layout=layout, max_tokens=1 << 17, device=model.device))
    for is_routed, logit_rows in product(routes, (0, 5)):  # whole, and five tokens' logits at a time
        for batch in batches:
            try:
                with routed_roles(model, batch) if is_routed else nullcontext():
                    found = token_logprobs(model, batch, logit_rows=logit_rows)[0].cpu()
            except torch.OutOfMemoryError:
                raise
            except UserError as error:
                raise UserError(str(error).replace("use row_layout padded", remedy)) from error
            except _FAULTS as error:
                raise UserError(
                    f"{kind} cannot be computed in row_layout {layout}: {remedy} ({_first_line(error)})"
                ) from error
            own = torch.cat([every[rows.index(row)] for row in batch.rows])
            wanted = own.gather(1, batch.targets.cpu()[:, None])[:, 0]
            difference = float((found - wanted).abs().max())
            if not difference <= tolerance(model):
                raise UserError(
                    f"{kind}: log-probabilities of row_layout {layout} are off by {difference:.2g}; {remedy}"
                )
            worst = max(worst, difference)
    return worst


@contextmanager
def _wearing_adapters(model: PreTrainedModel, config: ModelConfig) -> Iterator[Any]:
    """The model, for as long with two adapters that say something if such are trained."""
    if config.adapter == "none":
        yield model
        return
    plain = config.model_copy(update={"adapter": "lora"})  # the base is not yet in 4 bits
    with restored(model):
        worn: Any = attach(model, plain, seed=0, name=NAMES[0])
        try:
            worn.add_adapter(NAMES[1], worn.peft_config[NAMES[0]])
            generator = torch.Generator().manual_seed(0)
            with torch.no_grad():
                for name, parameter in worn.named_parameters():
                    if "lora_B" in name:
                        parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.02)
            yield worn
        finally:
            worn.unload()


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]

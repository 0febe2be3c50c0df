"""A check of a base before training: the learner's row layouts against the model's own forward pass."""

from collections.abc import Iterable

import torch
from transformers import PreTrainedModel

from roles.errors import UserError
from training.learner.packing import LayoutName, make_batches
from training.learner.rows import TrainingRow
from training.learner.token_logprobs import token_logprobs

TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-3}  # of log-probabilities
TOLERANCE_IN_HALF = 0.25
PROMPT, OWN = 20, 9  # tokens of each checked row


def check_layouts(model: PreTrainedModel, layouts: Iterable[LayoutName]) -> float:
    """Largest difference of a token's log-probability between a layout and the model's own pass.

    Raises:
        UserError: a layout does not fit the model, or differs.
    """
    size = int(model.config.get_text_config().vocab_size)
    prompt = [k % size for k in range(PROMPT)]
    texts = [prompt + [(11 * number + 3 * k) % size for k in range(OWN)] for number in range(3)]
    rows = [
        TrainingRow(
            role="cto",
            token_ids=tuple(text),
            loss_mask=(0,) * PROMPT + (1,) * OWN,
            sampling_logprobs=(0.0,) * len(text),
            advantage=1.0,
        )
        for text in texts
    ]
    was_training, attention, worst = model.training, model.config._attn_implementation, 0.0
    most = TOLERANCE.get(next(model.parameters()).dtype, TOLERANCE_IN_HALF)
    model.eval()
    try:
        with torch.no_grad():
            every = model(input_ids=torch.tensor(texts, device=model.device), use_cache=False).logits
            every = every.float().log_softmax(-1).cpu()
            for layout in dict.fromkeys(layouts):
                for batch in make_batches(rows, layout=layout, max_tokens=4096, device=model.device):
                    found = token_logprobs(model, batch)[0].cpu()
                    order = [texts.index(list(row.token_ids)) for row in batch.rows]
                    own = every[order, PROMPT - 1 : -1].flatten(0, 1)
                    wanted = own.gather(1, batch.targets.cpu()[:, None])[:, 0]
                    difference = float((found - wanted).abs().max())
                    if not difference <= most:
                        raise UserError(
                            f"{model.config.model_type}: log-probabilities of row_layout {layout} are off by "
                            f"{difference:.2g}; use row_layout padded, or another model"
                        )
                    worst = max(worst, difference)
    finally:
        model.train(was_training)
        if model.config._attn_implementation != attention:
            model.set_attn_implementation(attention)
    return worst

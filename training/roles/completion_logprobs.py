"""Log-probabilities of completion tokens by plain forward passes, for validation and for alarms on KL."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from training.runs.resume import load_tensors, trained_tensors

Row = tuple[Sequence[int], Sequence[int]]  # token ids, and 1 on completion tokens


@torch.no_grad()
def completion_logprobs(
    model: nn.Module, rows: Sequence[Row], *, rows_per_pass: int, temperature: float = 1.0
) -> Tensor:
    """Log-probabilities of all completion tokens, row after row, shape (tokens,); the mode is kept."""
    adapted: Any = model
    was_training, device = model.training, next(model.parameters()).device
    model.eval()
    found = [torch.zeros(0)]
    for start in range(0, len(rows), rows_per_pass):
        batch = rows[start : start + rows_per_pass]
        ids, own = (
            pad_sequence([torch.tensor(list(row[part])) for row in batch], batch_first=True).to(device)
            for part in (0, 1)
        )
        attention = pad_sequence(
            [torch.ones(len(row[0]), dtype=torch.long) for row in batch], batch_first=True
        )
        hidden = adapted.get_decoder()(
            input_ids=ids, attention_mask=attention.to(device), use_cache=False
        ).last_hidden_state
        places = own[:, 1:].bool()
        logits = adapted.get_output_embeddings()(hidden[:, :-1][places]).float() / temperature
        logprobs = torch.log_softmax(logits, -1).gather(1, ids[:, 1:][places][:, None])[:, 0]
        found.append(logprobs.cpu())
    model.train(was_training)
    return torch.cat(found)


class ReferencePolicy:
    """A copy of the weights at the start of the stage, put into the model to compute log-probabilities."""

    def __init__(self, model: nn.Module) -> None:
        self._tensors = {name: t.to("cpu", copy=True) for name, t in trained_tensors(model).items()}

    def kl(
        self, model: nn.Module, rows: Sequence[Row], sampled: Sequence[float], *, temperature: float
    ) -> float:
        """KL(policy || reference policy) in nats per completion token, by the k3 estimate on sampled tokens.

        `sampled` are the tokens' log-probabilities when they were sampled. Infinite where not finite.
        """
        first = self.logprobs(model, rows, temperature=temperature).double()
        if not len(first):
            return 0.0
        difference = first - torch.tensor(list(sampled), dtype=torch.float64)
        value = float((difference.exp() - 1 - difference).mean())
        return value if math.isfinite(value) else math.inf

    def logprobs(self, model: nn.Module, rows: Sequence[Row], *, temperature: float) -> Tensor:
        """Result of `completion_logprobs` for the weights at the start of the stage, in passes of 8 rows."""
        now = {name: t.clone() for name, t in trained_tensors(model).items()}
        load_tensors(self._tensors, trained_tensors(model))
        try:
            return completion_logprobs(model, rows, rows_per_pass=8, temperature=temperature)
        finally:
            load_tensors(now, trained_tensors(model))

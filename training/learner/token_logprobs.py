"""Log-probabilities of own tokens, and of nothing else: the output head sees the places before them only.

With `logit_rows` the logits of so many tokens exist at once. Their softmax is taken while they do, and the
gradient to the hidden states is kept instead of them: a vector of the model's width per token, not of its
vocabulary. Weights of the head that train recompute their logits in the backward pass.
"""

import math
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float
from peft import PeftModel
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutputWithPast

from training.learner.row_attention import every_layer_by_rows, use_row_attention
from training.learner.rows import RowBatch, make_plain_row, pad_rows
from training.runs.resume import load_tensors, trained_tensors

_plain_heads: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
SHARDED_METHODS = ("own_logprobs", "own_hidden")  # what a sharded model computes between gather and reshard


def token_logprobs(
    model: nn.Module, batch: RowBatch, *, temperature: float = 1.0, logit_rows: int = 0
) -> tuple[Float[Tensor, " own"], Float[Tensor, " own"]]:
    """Log-probabilities and entropies at the own tokens, in the batch's order; gradient flows to the first.

    Both are those of the distribution that was sampled from, so that the ratio to the sampling logprobs is 1
    at the start at every temperature.
    """
    sharded: Any = getattr(model, "own_logprobs", None)
    if sharded is not None:
        return sharded(batch, temperature, logit_rows)  # type: ignore[no-any-return]
    return _logprobs(model, batch, temperature, logit_rows)


def hidden_before(model: nn.Module, batch: RowBatch) -> Float[Tensor, "own width"]:
    """The last hidden states at the places before the own tokens."""
    sharded: Any = getattr(model, "own_hidden", None)
    if sharded is not None:
        return sharded(batch)  # type: ignore[no-any-return]
    return _hidden(model, batch)


def make_shardable(model: nn.Module) -> None:
    """Give the model the two passes as methods: FSDP2 gathers weights around a model's own methods only."""
    adapted: Any = model
    adapted.own_logprobs = partial(_logprobs, model)
    adapted.own_hidden = partial(_hidden, model)


def compute_in_bf16(model: nn.Module) -> None:
    """Let both passes multiply in bfloat16 (autocast); weights and their gradients stay in float32."""
    adapted: Any = model
    cast = torch.autocast(next(model.parameters()).device.type, torch.bfloat16)
    adapted.own_logprobs = cast(partial(_logprobs, model))
    adapted.own_hidden = cast(partial(_hidden, model))


def _logprobs(
    model: nn.Module, batch: RowBatch, temperature: float, logit_rows: int
) -> tuple[Tensor, Tensor]:
    if not _has_plain_head(model):
        logits = _own_logits(model, batch)
    else:
        head, hidden = _head(model), _hidden(model, batch)
        is_matrix = isinstance(head, nn.Linear) and head.bias is None  # one that wears an adapter is more
        if logit_rows and is_matrix:
            weight = head.weight
            if not hidden.is_meta and torch.is_autocast_enabled(
                hidden.device.type
            ):  # its backward pass is outside of it
                precision = torch.get_autocast_dtype(hidden.device.type)
                hidden, weight = hidden.to(precision), weight.to(precision)
            pieces = (hidden, weight, batch.targets, temperature, logit_rows)
            logprobs, entropy = _InPieces.apply(*pieces)  # type: ignore[no-untyped-call]
            return logprobs, entropy
        logits = head(hidden)
    every = torch.log_softmax(logits.float() / temperature, dim=-1)
    entropy = -(every.exp() * every).sum(-1)
    return every.gather(1, batch.targets[:, None])[:, 0], entropy


def _hidden(model: nn.Module, batch: RowBatch) -> Tensor:
    return _run(model, _decoder(model), batch).last_hidden_state.flatten(0, 1)[batch.predict_at]  # type: ignore[no-any-return]


def _own_logits(model: nn.Module, batch: RowBatch) -> Tensor:
    """Logits before the own tokens by the model's own forward pass: scaled, capped, or what else it does."""

    def keep_asked(module: nn.Module, args: Any, output: Any) -> Any:
        output.last_hidden_state = output.last_hidden_state.flatten(0, 1)[batch.predict_at][None]
        return output

    handle = _decoder(model).register_forward_hook(keep_asked)
    try:
        return _run(model, _causal(model).forward, batch).logits[0]  # type: ignore[no-any-return]
    finally:
        handle.remove()


def _has_plain_head(model: Any) -> bool:
    """Return whether the model's logits are its output embeddings' alone, neither scaled nor capped.

    Its own forward pass is asked, once, with hidden states in place of its layers' that are so large that a
    cap shows.
    """
    causal, decoder, head = _causal(model), _decoder(model), _head(model)
    if head.weight.is_meta:
        return True
    if causal not in _plain_heads:
        count = 2 * head.weight.shape[1]
        probe = 1e4 * torch.arange(1, count + 1, device=head.weight.device, dtype=torch.float32).sin()
        hidden: Any = probe.view(1, 2, -1).to(head.weight.dtype)
        given = BaseModelOutputWithPast(last_hidden_state=hidden)
        before = decoder.__dict__.get("forward")
        decoder.__dict__["forward"] = lambda *args, **options: given
        try:
            with torch.no_grad():
                ids = torch.zeros(1, 2, dtype=torch.long, device=head.weight.device)
                own = causal.forward(input_ids=ids, use_cache=False).logits.float()
                plain = head(hidden).float()
            _plain_heads[causal] = bool((own - plain).norm() <= 1e-2 * plain.norm())
        except (AttributeError, TypeError, KeyError):  # it wants more from its layers
            _plain_heads[causal] = False
        finally:
            if before is None:
                del decoder.__dict__["forward"]
            else:
                decoder.__dict__["forward"] = before
    return _plain_heads[causal]


def _run(model: nn.Module, forward: Any, batch: RowBatch) -> Any:
    options: dict[str, Any] = {}
    attention = batch.attention
    if batch.layout is not None:
        use_row_attention(model)
        options = {"layout": batch.layout, "position_ids": batch.position_ids}
        attention = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=batch.token_ids.device)  # none is made
    with nullcontext() if batch.layout is None else every_layer_by_rows(model):
        return forward(input_ids=batch.token_ids, attention_mask=attention, use_cache=False, **options)


class _InPieces(torch.autograd.Function):
    """(hidden, head weights, targets) -> (logprobs, entropies), a few tokens' logits at a time."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, temperature: float, rows: int
    ) -> tuple[Tensor, Tensor]:
        logprobs = hidden.new_empty(len(hidden), dtype=torch.float32)
        entropies = torch.empty_like(logprobs)
        slopes = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None  # d logprob / d hidden
        for start in range(0, len(hidden), rows):
            part = slice(start, start + rows)
            every = _log_softmax(hidden[part], weight, temperature)
            logprobs[part] = every.gather(1, targets[part, None])[:, 0]
            chances = every.exp()
            entropies[part] = -(chances * every).sum(-1)
            if slopes is not None:
                slopes[part] = (weight[targets[part]] - chances.to(weight.dtype) @ weight) / temperature
        ctx.save_for_backward(hidden, weight, targets, slopes)
        ctx.temperature, ctx.rows = temperature, rows
        ctx.mark_non_differentiable(entropies)
        return logprobs, entropies

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        hidden, weight, targets, slopes = ctx.saved_tensors
        to_hidden = None if slopes is None else slopes * grad[:, None].to(slopes.dtype)
        if not ctx.needs_input_grad[1]:
            return to_hidden, None, None, None, None
        to_weight = torch.zeros_like(weight, dtype=torch.float32)
        scaled = grad / ctx.temperature
        for start in range(0, len(hidden), ctx.rows):
            part = slice(start, start + ctx.rows)
            chances = _log_softmax(hidden[part], weight, ctx.temperature).exp_()
            chances *= -scaled[part, None]
            to_weight.addmm_(chances.T, hidden[part].float())
        to_weight.index_add_(0, targets, scaled[:, None] * hidden.float())
        return to_hidden, to_weight.to(weight.dtype), None, None, None


def _log_softmax(hidden: Tensor, weight: Tensor, temperature: float) -> Tensor:
    return torch.log_softmax((hidden @ weight.T).float() / temperature, dim=-1)


def _causal(model: Any) -> Any:
    return model.get_base_model() if isinstance(model, PeftModel) else model


def _decoder(model: Any) -> Any:
    return model.get_decoder()


def _head(model: Any) -> Any:
    return model.get_output_embeddings()


Row = tuple[Sequence[int], Sequence[int]]  # token ids, and 1 on completion tokens


@torch.no_grad()
def completion_logprobs(
    model: nn.Module, rows: Sequence[Row], *, rows_per_pass: int, temperature: float = 1.0
) -> Tensor:
    """Log-probabilities of all completion tokens, row after row, shape (tokens,); the mode is kept."""
    was_training, device = model.training, next(model.parameters()).device
    model.eval()
    found = [torch.zeros(0)]
    for start in range(0, len(rows), rows_per_pass):
        batch = pad_rows([make_plain_row(*row) for row in rows[start : start + rows_per_pass]], device)
        found.append(token_logprobs(model, batch, temperature=temperature)[0].cpu())
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

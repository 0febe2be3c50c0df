"""The algorithm-blind learner: rows of token ids, masks, sampling logprobs and advantages in, weights out.

Loss of one role: minus the mean over its own tokens of min(r A, clip(r) A), plus kl_coefficient times the
k3 estimate of KL(policy || reference). The mean counts the tokens of rows without advantage too, which
are not computed: they would add nothing.
Source: arXiv:2402.03300; no division by the group's standard deviation as in arXiv:2503.20783.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from training.config import MarlConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRow:
    """One trajectory as the learner sees it.

    Example: TrainingRow(role="cto", token_ids=(3, 8, 41, 1), loss_mask=(0, 0, 1, 1),
                         sampling_logprobs=(0.0, 0.0, -0.2, -0.1), advantage=0.31)
    """

    role: str
    token_ids: tuple[int, ...]
    loss_mask: tuple[int, ...]  # 1 on tokens that this role sampled
    sampling_logprobs: tuple[float, ...]  # aligned; 0.0 where the mask is 0
    advantage: float  # one per row, for all its own tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class LossStats:
    """What one role's loss was made of (means over its own tokens; `num_rows` counts rows with advantage)."""

    loss: float
    kl: float
    clip_fraction: float
    entropy: float
    num_rows: int
    num_tokens: int


def token_logprobs(
    model: nn.Module,
    token_ids: Int[Tensor, "rows width"],
    attention: Int[Tensor, "rows width"],
    mask: Tensor,
    *,
    temperature: float = 1.0,
) -> tuple[Float[Tensor, " own"], Float[Tensor, " own"]]:
    """Log-probabilities and entropies at the own tokens only, in row-major order; gradient flows to both.

    `mask` (rows, width) bool marks the tokens to predict; column 0 can never be one. The output head is
    applied to the positions just before them and nowhere else. Both are those of the distribution that was
    sampled from, so that the ratio to the sampling logprobs is 1 at the start at every temperature.
    """
    hidden = _decoder(model)(input_ids=token_ids, attention_mask=attention, use_cache=False).last_hidden_state
    before = mask[:, 1:]
    logits = _head(model)(hidden[:, :-1][before]).float() / temperature
    logprobs = torch.log_softmax(logits, dim=-1)
    entropy = -(logprobs.exp() * logprobs).sum(-1)
    return logprobs.gather(1, token_ids[:, 1:][before][:, None])[:, 0], entropy


def clipped_surrogate(
    logprobs: Float[Tensor, " own"],
    sampling_logprobs: Float[Tensor, " own"],
    advantages: Float[Tensor, " own"],
    *,
    clip_low: float,
    clip_high: float,
) -> tuple[Float[Tensor, " own"], Tensor]:
    """Per-token loss -min(r A, clip(r, 1 - low, 1 + high) A), and where the clip took the gradient away."""
    ratio = torch.exp(logprobs - sampling_logprobs)
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    is_clipped = ratio * advantages > clipped * advantages
    return -torch.minimum(ratio * advantages, clipped * advantages), is_clipped


def kl_k3(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """Per-token estimate exp(d) - 1 - d of KL(policy || reference), d = reference - policy; >= 0."""
    difference = reference_logprobs - logprobs
    return torch.exp(difference) - 1 - difference


def backward_role(
    model: nn.Module, rows: Sequence[TrainingRow], config: MarlConfig, *, reference: nn.Module | None = None
) -> LossStats:
    """Accumulate one role's gradients over all its rows; the result does not depend on micro-batch cuts.

    Raises:
        ValueError: no rows, or KL asked for without a reference.
    """
    if not rows:
        raise ValueError("no rows")
    if config.kl_coefficient > 0 and reference is None:
        raise ValueError("kl_coefficient > 0 needs a reference model")
    total_tokens = sum(sum(row.loss_mask) for row in rows)
    live = [row for row in rows if row.advantage != 0.0]
    sums = {"loss": 0.0, "kl": 0.0, "clipped": 0.0, "entropy": 0.0, "tokens": 0.0}
    device = next(model.parameters()).device
    for batch in micro_batches(live, config.micro_batch_tokens):
        tensors = collate(batch, device)
        places = (tensors["token_ids"], tensors["attention"], tensors["mask"])
        logprobs, entropy = token_logprobs(model, *places, temperature=config.temperature)
        losses, is_clipped = clipped_surrogate(
            logprobs,
            tensors["sampling_logprobs"],
            tensors["advantages"],
            clip_low=config.clip_low,
            clip_high=config.clip_high,
        )
        loss = losses.sum() / total_tokens
        if reference is not None and config.kl_coefficient > 0:
            with torch.no_grad():
                base, _ = token_logprobs(reference, *places, temperature=config.temperature)
            kl = kl_k3(logprobs, base).sum()
            loss = loss + config.kl_coefficient * kl / total_tokens
            sums["kl"] += float(kl.detach())
        loss.backward()  # type: ignore[no-untyped-call]
        sums["loss"] += float(loss.detach())
        sums["clipped"] += float(is_clipped.sum())
        sums["entropy"] += float(entropy.detach().sum())
        sums["tokens"] += logprobs.numel()
    seen = max(1.0, sums["tokens"])
    return LossStats(
        loss=sums["loss"],
        kl=sums["kl"] / seen,
        clip_fraction=sums["clipped"] / seen,
        entropy=sums["entropy"] / seen,
        num_rows=len(live),
        num_tokens=int(sums["tokens"]),
    )


def micro_batches(rows: Sequence[TrainingRow], max_tokens: int) -> Iterator[list[TrainingRow]]:
    """Rows by length, cut so that a padded batch holds at most `max_tokens` (or one row)."""
    batch: list[TrainingRow] = []
    for row in sorted(rows, key=lambda row: len(row.token_ids)):
        if batch and (len(batch) + 1) * len(row.token_ids) > max_tokens:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def collate(rows: Sequence[TrainingRow], device: Any) -> Mapping[str, Tensor]:
    """Right-padded tensors; `sampling_logprobs` and `advantages` hold own tokens only, in row-major order."""
    width = max(len(row.token_ids) for row in rows)
    token_ids = torch.zeros(len(rows), width, dtype=torch.long)
    attention = torch.zeros(len(rows), width, dtype=torch.long)
    mask = torch.zeros(len(rows), width, dtype=torch.bool)
    sampled: list[float] = []
    advantages: list[float] = []
    for i, row in enumerate(rows):
        length = len(row.token_ids)
        token_ids[i, :length] = torch.tensor(row.token_ids)
        attention[i, :length] = 1
        mask[i, :length] = torch.tensor(row.loss_mask, dtype=torch.bool)
        own = [value for value, bit in zip(row.sampling_logprobs, row.loss_mask, strict=True) if bit]
        sampled += own
        advantages += [row.advantage] * len(own)
    return {
        "token_ids": token_ids.to(device),
        "attention": attention.to(device),
        "mask": mask.to(device),
        "sampling_logprobs": torch.tensor(sampled, device=device),
        "advantages": torch.tensor(advantages, device=device),
    }


def _decoder(model: Any) -> Any:
    return model.get_decoder()


def _head(model: Any) -> Any:
    return model.get_output_embeddings()

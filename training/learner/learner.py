"""The algorithm-blind learner: rows of token ids, masks, sampling logprobs and advantages in, gradients out.

Loss of one role: minus the mean over its own tokens of min(r A, clip(r) A), plus the weight of KL times an
estimate of KL(policy || reference). The mean counts rows without advantage too, which are not computed: they
would add nothing. Roles that share a base go through it together; the loss is the sum over roles.
The engine may compute in another precision or be some steps behind: its logprobs are the truth about how
likely the sample was, the learner's own have a gradient, and their mismatch is measured and corrected.
Source: arXiv:2402.03300; no division by the group's standard deviation as in arXiv:2503.20783.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from simulator.engines.adapter_names import START
from training.config.rl_config import RLConfig
from training.learner.fsdp import compute_device, is_sharded
from training.learner.lora_batch import routed_roles
from training.learner.rows import RowBatch, TrainingRow, idle_batch, make_batches
from training.learner.token_logprobs import token_logprobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """Learner against engine over the trained tokens.

    Example: Mismatch(mean=0.002, largest=0.04, kl=1e-5, effective_share=0.999)
    """

    mean: float = 0.0  # mean |log learner - log engine|
    largest: float = 0.0
    kl: float = 0.0  # KL(engine || learner) per token, k3
    effective_share: float = 1.0  # effective sample size over tokens, (sum w)^2 / (n sum w^2)
    worst_call: float = 0.0  # mean |log learner - log engine| of the completion in which it is largest


EXACT = Mismatch()


@dataclass(slots=True)
class MismatchSums:
    """Adds up a Mismatch over micro-batches, on the device: the host waits for it in `result` alone."""

    count: int = 0
    sums: Float[Tensor, " 4"] | None = None  # of |gaps|, k3, weights and their squares
    largest: Float[Tensor, " 2"] | None = None  # of a token's |gap| and of a call's mean |gap|

    def add(
        self,
        logprobs: Float[Tensor, " own"],
        sampling_logprobs: Float[Tensor, " own"],
        call_of: Int[Tensor, " own"],
        num_calls: int,
    ) -> None:
        """Take in some tokens of whole calls, numbered 0 to `num_calls` - 1."""
        if not len(logprobs):
            return
        gap = (logprobs - sampling_logprobs).double()
        weights = gap.exp()
        self.count += len(gap)
        found = torch.stack([gap.abs(), weights - 1 - gap, weights, weights.square()]).sum(1)
        of_calls = _mean_within(gap.abs(), call_of, num_calls)
        most = torch.stack([gap.abs().max(), of_calls.max()])
        self.sums = found if self.sums is None else self.sums + found
        self.largest = most if self.largest is None else torch.maximum(self.largest, most)

    def result(self) -> Mismatch:
        """The means over all tokens so far."""
        if self.sums is None or self.largest is None:
            return EXACT
        absolute, kl, weights, squares, largest, worst_call = torch.cat([self.sums, self.largest]).tolist()
        share = weights**2 / (self.count * squares) if squares else math.nan
        return Mismatch(
            mean=absolute / self.count,
            largest=largest,
            kl=kl / self.count,
            effective_share=share,
            worst_call=worst_call,
        )


def ratios_of(
    logprobs: Float[Tensor, " own"],
    sampling_logprobs: Float[Tensor, " own"],
    row_of: Int[Tensor, " own"],
    num_rows: int,
    *,
    level: Literal["token", "sequence"],
) -> Float[Tensor, " own"]:
    """Probability ratios per token: its own, or the geometric mean over its row (GSPO, arXiv:2507.18071)."""
    gap = logprobs - sampling_logprobs
    if level == "token":
        return torch.exp(gap)
    return torch.exp(_mean_within(gap, row_of, num_rows)[row_of])


def call_weights(
    logprobs: Float[Tensor, " own"], batch: RowBatch, *, level: Literal["token", "call"], cap: float
) -> Float[Tensor, " own"]:
    """Truncated importance weights min(learner / engine, cap) per token, or of whole calls.

    A call is one completion of the engine: its weight is the product over its tokens.
    """
    gap = logprobs - batch.sampling_logprobs
    if level == "call":
        gap = _sum_within(gap, batch.call_of, batch.num_calls)[batch.call_of]
    return torch.exp(gap).clamp(max=cap)


def _sum_within(values: Tensor, group_of: Tensor, groups: int) -> Tensor:
    return torch.zeros(groups, dtype=values.dtype, device=values.device).index_add(0, group_of, values)


def _mean_within(values: Tensor, group_of: Tensor, groups: int) -> Tensor:
    counts = _sum_within(torch.ones_like(values), group_of, groups)
    return _sum_within(values, group_of, groups) / counts.clamp(min=1)


IMPORTANCE_CAP = 2.0  # greatest weight of a call or token for what the engine sampled
KeptLogprobs = dict[tuple[int, int], Tensor]  # ids of a reference and of a row -> (own,)


@dataclass(frozen=True, slots=True, kw_only=True)
class LossStats:
    """Parts of one role's loss (means over its own tokens; `num_rows` counts rows with advantage)."""

    loss: float
    kl: float | None  # to the reference; None where it was not measured
    clip_fraction: float
    entropy: float
    num_rows: int
    num_tokens: int
    mismatch: Mismatch = EXACT  # of the learner's log-probabilities from the engine's
    grad_norm: float = 0.0  # before it was scaled down; set by the update


def join_stats(updates: Sequence[LossStats]) -> LossStats:
    """Of several updates on one batch: means over their tokens; the mismatch is the first one's.

    Later updates differ from the engine by what the earlier ones taught: that is no fault of the engine.
    """
    if len(updates) == 1:
        return updates[0]
    tokens = max(1, sum(one.num_tokens for one in updates))

    def mean(values: Sequence[float]) -> float:
        pairs = zip(values, updates, strict=True)
        return sum(value * one.num_tokens for value, one in pairs) / tokens

    measured = [one.kl for one in updates if one.kl is not None]
    return LossStats(
        loss=mean([one.loss for one in updates]),
        kl=mean([one.kl or 0.0 for one in updates]) if measured else None,
        clip_fraction=mean([one.clip_fraction for one in updates]),
        entropy=mean([one.entropy for one in updates]),
        num_rows=sum(one.num_rows for one in updates),
        num_tokens=sum(one.num_tokens for one in updates),
        mismatch=updates[0].mismatch,
        grad_norm=max(one.grad_norm for one in updates),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCounts:
    """Divisors of a role's loss: its rows of the step on all ranks, and their own tokens."""

    rows: float
    tokens: float


@dataclass(slots=True)
class _Sums:
    """Running sums of one role over its micro-batches, on the device: the host waits once, at the end."""

    parts: Tensor  # (4,) float64: loss, clipped tokens, entropy, KL
    has_kl: bool = False
    tokens: int = 0


def clipped_surrogate(
    ratio: Float[Tensor, " own"],
    advantages: Float[Tensor, " own"],
    *,
    clip_low: float,
    clip_high: float,
) -> tuple[Float[Tensor, " own"], Tensor]:
    """Per-token loss -min(r A, clip(r, 1 - low, 1 + high) A), and where the clip took the gradient away."""
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    is_clipped = ratio * advantages > clipped * advantages
    return -torch.minimum(ratio * advantages, clipped * advantages), is_clipped


def estimate_kl(logprobs: Float[Tensor, " own"], reference: Float[Tensor, " own"]) -> Float[Tensor, " own"]:
    """Per-token estimate k3 = exp(-d) - 1 + d of KL(policy || reference), d = log policy - log reference.

    As a loss it pulls towards the reference; it is never below 0, and its mean under the policy is the
    divergence (http://joschu.net/blog/kl-approx.html).
    """
    difference = logprobs - reference
    return torch.exp(-difference) - 1 + difference


def backward_team(
    model: nn.Module,
    rows: Mapping[str, Sequence[TrainingRow]],
    config: RLConfig,
    *,
    references: Mapping[str, nn.Module] | None = None,
    counts: Mapping[str, RowCounts] | None = None,
    agree: Callable[[int], int] = int,
    kept: KeptLogprobs | None = None,
) -> dict[str, LossStats]:
    """Accumulate the gradients of all roles that this model speaks for, in one pass over their rows.

    Sharded weights are gathered by all ranks at once: `agree` makes a number the largest of any rank's, so
    that all take the same passes, of references too.

    Args:
        kept: log-probabilities by references of rows seen before in this step; those of new rows are added.
        references: of each role the model that KL is measured from; `model` itself stands for what its
            adapters were when `keep_start` kept them.

    Raises:
        ValueError: KL asked for without a reference.
    """
    if config.loss.kl_coefficient > 0:
        references = {role: one for role, one in (references or {}).items() if role in rows}
        if references.keys() < rows.keys():
            raise ValueError("kl_coefficient > 0 needs a reference model")
    else:
        references = {}
    counts = counts or {role: count_rows(of_role) for role, of_role in rows.items()}
    live = {role: [row for row in of_role if row.has_signal] for role, of_role in rows.items()}
    device = compute_device(model)
    sums = {role: _Sums(parts=torch.zeros(4, dtype=torch.float64, device=device)) for role in rows}
    gaps = {role: MismatchSums() for role in rows}
    kept = {} if kept is None else kept

    def is_asked(reference: nn.Module) -> bool:
        own = [row for role, of_role in live.items() if references.get(role) is reference for row in of_role]
        return any((id(reference), id(row)) not in kept for row in own)

    asked = [
        one for one in {id(one): one for one in references.values()}.values() if agree(int(is_asked(one)))
    ]
    batches = list(
        make_batches(
            [row for of_role in live.values() for row in of_role],
            layout=config.memory.row_layout,
            max_tokens=config.memory.micro_batch_tokens,
            device=device,
        )
    )
    for _ in range(agree(len(batches)) - len(batches)):
        for reference in asked:
            with torch.no_grad():
                idle_pass(reference, config, device)
        idle_pass(model, config, device)
    for batch in batches:
        with routed_roles(model, batch):
            for reference in asked:
                needed = {id(one) for role, one in references.items() if role in batch.role_own}
                if is_sharded(reference) or id(reference) in needed:
                    _keep_logprobs(kept, reference, model, batch, config)
            loss = _batch_loss(model, batch, counts, config, references, sums, gaps, kept)
            loss.backward()  # type: ignore[no-untyped-call]
    return {role: _make_stats(one, len(live[role]), gaps[role]) for role, one in sums.items()}


def _make_stats(sums: _Sums, num_rows: int, gaps: MismatchSums) -> LossStats:
    loss, clipped, entropy, kl = sums.parts.tolist()
    tokens = max(1, sums.tokens)
    return LossStats(
        loss=loss,
        kl=kl / tokens if sums.has_kl else None,
        clip_fraction=clipped / tokens,
        entropy=entropy / tokens,
        num_rows=num_rows,
        num_tokens=sums.tokens,
        mismatch=gaps.result(),
    )


def count_rows(rows: Sequence[TrainingRow]) -> RowCounts:
    """All rows of one rank, those without advantage too."""
    return RowCounts(rows=len(rows), tokens=sum(row.num_own for row in rows))


def idle_pass(model: nn.Module, config: RLConfig, device: torch.device) -> None:
    """A pass without effect, while other ranks have rows and this one has none left."""
    batch = idle_batch(device)
    with routed_roles(model, batch):
        logprobs, _ = token_logprobs(model, batch, logit_rows=config.memory.logit_rows)
        if torch.is_grad_enabled():
            (0 * logprobs.sum()).backward()  # type: ignore[no-untyped-call]


def _batch_loss(
    model: nn.Module,
    batch: RowBatch,
    counts: Mapping[str, RowCounts],
    config: RLConfig,
    references: Mapping[str, nn.Module],
    sums: Mapping[str, _Sums],
    gaps: Mapping[str, MismatchSums],
    kept: KeptLogprobs,
) -> Tensor:
    """The loss of one micro-batch, summed over its roles; its parts are added to `sums`."""
    logprobs, entropy = token_logprobs(
        model, batch, temperature=config.temperature, logit_rows=config.memory.logit_rows
    )
    losses, is_clipped = policy_losses(logprobs, batch, config)
    total = torch.zeros((), device=losses.device)
    for role, own in batch.role_own.items():
        loss = reduce_losses(losses[own], batch, own, counts[role], config)
        one, kl_sum = sums[role], loss.new_zeros(())
        if role in references:
            base = torch.cat([kept[id(references[role]), id(row)] for row in batch.rows if row.role == role])
            kl = estimate_kl(logprobs[own], base)
            loss = loss + config.loss.kl_coefficient * reduce_losses(kl, batch, own, counts[role], config)
            kl_sum, one.has_kl = kl.detach().sum(), True
        found = (loss.detach(), is_clipped[own].sum(), entropy[own].detach().sum(), kl_sum)
        one.parts += torch.stack([part.double() for part in found])
        one.tokens += own.stop - own.start
        sampling, call_of = batch.sampling_logprobs[own], batch.call_of[own]
        gaps[role].add(logprobs[own].detach(), sampling, call_of, batch.num_calls)
        total = loss if len(batch.role_own) == 1 else total + loss
    return total


def policy_losses(
    logprobs: Float[Tensor, " own"], batch: RowBatch, config: RLConfig
) -> tuple[Float[Tensor, " own"], Tensor]:
    """Per own token the policy-gradient loss, and whether the clip took its gradient away."""
    sampling = batch.sampling_logprobs
    if config.loss.importance != "ratio":
        weights = call_weights(logprobs.detach(), batch, level=config.loss.importance, cap=IMPORTANCE_CAP)
        now = torch.exp(logprobs - logprobs.detach())  # 1, with the gradient of a ratio
        return -weights * now * batch.advantages, torch.zeros_like(now, dtype=torch.bool)
    ratio = ratios_of(logprobs, sampling, batch.row_of, len(batch.rows), level=config.loss.clip_level)
    return clipped_surrogate(
        ratio, batch.advantages, clip_low=config.loss.clip_low, clip_high=config.loss.clip_high
    )


def reduce_losses(
    losses: Float[Tensor, " own"],
    batch: RowBatch,
    own: slice,
    counts: RowCounts,
    config: RLConfig,
) -> Tensor:
    """The role's loss from those of its tokens; `counts` are of the whole step, not of the batch.

    dapo: mean over all own tokens. grpo, gspo: mean over rows of each row's mean. dr_grpo: as if every row
    were max_row_tokens long. The names are TRL's; its gspo is grpo with importance sampling by sequence.
    """
    if config.loss.kind == "dapo":
        return losses.sum() / counts.tokens
    if config.loss.kind == "dr_grpo":
        return losses.sum() / (counts.rows * config.max_row_tokens)
    lengths = batch.row_sizes.clamp(min=1)
    return (losses / lengths[batch.row_of[own]]).sum() / counts.rows


@torch.no_grad()
def _keep_logprobs(
    kept: KeptLogprobs, reference: nn.Module, model: nn.Module, batch: RowBatch, config: RLConfig
) -> None:
    with routed_roles(reference, batch, prefix=START if reference is model else ""):
        logprobs, _ = token_logprobs(
            reference, batch, temperature=config.temperature, logit_rows=config.memory.logit_rows
        )
    of_rows = logprobs.split_with_sizes([row.num_own for row in batch.rows])
    kept.update(((id(reference), id(row)), own) for row, own in zip(batch.rows, of_rows, strict=True))

"""Sampling whose randomness depends on (seed, session, position) alone, never on the rest of the batch."""

import hashlib

import torch
from torch import Tensor

_MASK32 = 0xFFFFFFFF
NUMBERS_AT_ONCE = 2**22  # noise or running sums; each takes 8 bytes in a few places
NUMBERS_AT_ONCE_ON_GPU = 2**26
MOST_NOISE = 4096  # tokens that get noise each; for those of a large vocabulary it costs more than the model


def session_seed(seed: int, session: str) -> int:
    """Derive a 32-bit stream number for one session."""
    digest = hashlib.blake2b(f"{seed}/{session}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little")


def _mix(x: Tensor) -> Tensor:
    """Apply the lowbias32 integer hash in place to int32 tensors, whose sums and products wrap."""
    x.bitwise_xor_((x >> 16).bitwise_and_(0xFFFF)).mul_(0x21F0AAAD)
    x.bitwise_xor_((x >> 15).bitwise_and_(0x1FFFF)).mul_(0x735A2D97)
    return x.bitwise_xor_((x >> 15).bitwise_and_(0x1FFFF))


def _wrap(x: Tensor) -> Tensor:
    """The lowest 32 bits of int64 numbers, as int32."""
    x = x & _MASK32
    return torch.where(x > _MASK32 >> 1, x - (1 << 32), x).to(torch.int32)


def uniform_noise(streams: Tensor, positions: Tensor, vocab_size: int) -> Tensor:
    """Compute (rows, vocab) numbers in (0, 1), a pure function of stream, position and token id."""
    key = _mix(_wrap(streams + positions * 0x9E3779B9))
    tokens = _wrap(torch.arange(vocab_size, device=streams.device) * 0x85EBCA6B)
    bits = _mix(key[:, None] + tokens[None, :])
    return bits.bitwise_xor_(-(1 << 31)).double().add_(2**31 + 0.5).div_(2**32)


def sample_tokens(
    logits: Tensor, temperatures: Tensor, streams: Tensor, positions: Tensor, *, is_recorded: bool = False
) -> tuple[Tensor, Tensor]:
    """Sample ids (rows,) and their log-probabilities (rows,).

    Temperature 0 rows take the arg max; their log-probabilities are those of temperature 1.
    Log-probabilities are of the distribution sampled from (after temperature). `is_recorded`: the device is
    not asked whether all temperatures are 0.
    """
    greedy = temperatures == 0
    scale = torch.where(greedy, torch.ones_like(temperatures), temperatures)
    logprobs = torch.log_softmax(logits.float() / scale[:, None], dim=-1)
    tokens = logprobs.argmax(-1)
    if is_recorded or bool((temperatures > 0).any()):
        tokens = torch.where(greedy, tokens, _draw(logprobs, streams, positions))
    return tokens, logprobs.gather(1, tokens[:, None])[:, 0]


def _draw(logprobs: Tensor, streams: Tensor, positions: Tensor) -> Tensor:
    """A token of each row of logprobs (rows, vocab), some rows at a time: float64 needs much memory."""
    vocab_size = logprobs.shape[-1]
    draw = _perturbed_argmax if vocab_size <= MOST_NOISE else _inverted_sum
    at_once = max(1, (NUMBERS_AT_ONCE_ON_GPU if logprobs.is_cuda else NUMBERS_AT_ONCE) // vocab_size)
    given = (torch.split(one, at_once) for one in (logprobs, streams, positions))
    return torch.cat([draw(*part) for part in zip(*given, strict=True)])


def _perturbed_argmax(logprobs: Tensor, streams: Tensor, positions: Tensor) -> Tensor:
    """Arg max of logprobs (rows, vocab) plus Gumbel noise."""
    noise = uniform_noise(streams, positions, logprobs.shape[-1])
    return (logprobs - noise.log_().neg_().log_().float()).argmax(-1)


def _inverted_sum(logprobs: Tensor, streams: Tensor, positions: Tensor) -> Tensor:
    """The token at which the running sum of the chances passes one uniform number; logprobs (rows, vocab)."""
    sums = logprobs.exp().cumsum(-1, dtype=torch.float64)
    passed = uniform_noise(streams, positions, 1) * sums[:, -1:]
    found = torch.searchsorted(sums, passed)[:, 0]
    return found.clamp(max=logprobs.shape[-1] - 1)  # of logits that are not numbers, too

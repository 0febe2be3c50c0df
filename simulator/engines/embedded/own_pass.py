"""A model's own forward pass over whole texts: what the batched steps are checked by, and their stand-in.

Masks, windows, states and positions are the library's there. It computes a text anew for each token.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

SAMPLED = 4  # tokens of each probed text
SHORT = 24  # tokens of a text that no window has to fit in
ROOM = 16  # positions that a long text leaves for what follows
MOST_TOKENS = 8192
NO_END = 1 << 31
MOST_PRODUCTS = 10**12  # tokens times weights of a pass on a CPU: some ten seconds
TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-3}  # of log-probabilities
TOLERANCE_IN_HALF = 0.25
known: dict[str, bool] = {}  # config, dtype, device and attention -> whether the batched steps are right

Play = Callable[[Any, Sequence[Sequence[int]]], list[tuple[list[int], list[float]]]]


def config_key(model: Any) -> str:
    """Return what decides whether the batched steps are right for a model: no weights."""
    weight = next(model.parameters())
    attention = model.config._attn_implementation
    return f"{weight.dtype} {weight.device.type} {attention} {model.config.to_json_string(use_diff=False)}"


def has_partial_attention(model: Any) -> bool:
    """Return whether layers see a part of the text only, or keep a state: the engine's masks know neither."""
    config = model.config.get_text_config()
    kinds = getattr(config, "layer_types", None)
    if kinds:
        return any(kind != "full_attention" for kind in kinds)
    return find_window(model) is not None


def find_window(model: Any) -> int | None:
    """Return how many tokens back the layers of the widest window see; None: all of them."""
    config = model.config.get_text_config()
    if getattr(config, "use_sliding_window", True) is False:
        return None
    windows = [getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size")]
    return max((int(one) for one in windows if one), default=None)


def count_positions(config: Any) -> int:
    """Return the tokens of the longest text that a model reads; NO_END where it has no last position.

    LongRoPE turns by other angles beyond its original length, in all rows of a pass if in one: it ends there.
    """
    longest = int(getattr(config, "max_position_embeddings", None) or NO_END)
    rope = getattr(config, "rope_parameters", None) or {}
    for one in (rope, *rope.values()):  # of all layers, or by their kinds
        if isinstance(one, dict) and one.get("rope_type") == "longrope":
            longest = min(longest, int(one["original_max_position_embeddings"]))
    return longest


def long_text(model: Any, number: int = 0) -> list[int]:
    """Tokens that are more than the window of the model sees, where that is feasible.

    Its positions must allow it, and on a CPU the pass may take seconds, not minutes.
    """
    config = model.config.get_text_config()
    wanted = max(SHORT, (find_window(model) or 0) + 8)
    weights = sum(one.numel() for one in model.parameters())
    if wanted * weights > MOST_PRODUCTS and not next(model.parameters()).is_cuda:
        wanted = SHORT
    room = count_positions(config) - ROOM
    size = int(config.vocab_size)
    return [(7 * number + 5 * k + 3) % size for k in range(max(1, min(wanted, room, MOST_TOKENS)))]


def tolerance(model: Any) -> float:
    """Return how far a log-probability may be off by rounding."""
    return TOLERANCE.get(next(model.parameters()).dtype, TOLERANCE_IN_HALF)


def difference_of(model: Any, ids: Sequence[int], logprobs: Mapping[int, float]) -> float:
    """Largest difference between log-probabilities of tokens, by their places, and those of the own pass."""
    with torch.no_grad():
        device = next(model.parameters()).device
        every = model(input_ids=torch.tensor([list(ids)], device=device), use_cache=False).logits[0]
    first = min(logprobs) - 1
    every = every[first:].float().log_softmax(-1)
    return max(
        (
            abs(own - logprob)
            for place, logprob in logprobs.items()
            if (own := every[place - 1 - first, ids[place]].item()) == own
        ),
        default=0.0,
    )  # weights that are not finite fail where they are sampled from


def last_logits(model: Any, ids: Sequence[int]) -> Tensor:
    """Logits (1, vocabulary) of the token after a text."""
    device = next(model.parameters()).device
    logits: Tensor = model(input_ids=torch.tensor([list(ids)], device=device), use_cache=False).logits
    return logits[:, -1]


def equals(model: Any, play: Play) -> bool:
    """Return whether `play` samples from the model: log-probabilities equal those of its own pass."""
    size = int(model.config.get_text_config().vocab_size)
    longest = min(SHORT, count_positions(model.config) - SAMPLED)
    texts = [[(7 * row + 5 * k + 3) % size for k in range(length)] for row, length in ((0, longest), (1, 9))]
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            found = zip(texts, play(model, texts), strict=True)
            return tolerance(model) >= max(
                difference_of(model, [*text, *sampled], dict(enumerate(logprobs, len(text))))
                for text, (sampled, logprobs) in found
            )
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError):
        return False  # it does not take what the batched steps hand it
    finally:
        model.train(was_training)

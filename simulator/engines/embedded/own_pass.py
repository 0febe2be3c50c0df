"""A model's own forward pass over whole texts: what the batched steps are checked by, and their stand-in.

Masks, windows, states and positions are the library's there. It computes a text anew for each token.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

SAMPLED = 4  # tokens of each probed text
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
    windows = [getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size")]
    return any(windows) and getattr(config, "use_sliding_window", True) is not False


def last_logits(model: Any, ids: Sequence[int]) -> Tensor:
    """Logits (1, vocabulary) of the token after a text."""
    device = next(model.parameters()).device
    logits: Tensor = model(input_ids=torch.tensor([list(ids)], device=device), use_cache=False).logits
    return logits[:, -1]


def equals(model: Any, play: Play) -> bool:
    """Return whether `play` samples from the model: log-probabilities equal those of its own pass."""
    size = int(model.config.get_text_config().vocab_size)
    longest = min(24, int(getattr(model.config, "max_position_embeddings", 24)) - SAMPLED)
    texts = [[(7 * row + 5 * k + 3) % size for k in range(length)] for row, length in ((0, longest), (1, 9))]
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            return max(_differences(model, texts, play)) <= TOLERANCE.get(
                next(model.parameters()).dtype, TOLERANCE_IN_HALF
            )
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError):
        return False  # it does not take what the batched steps hand it
    finally:
        model.train(was_training)


def _differences(model: Any, texts: Sequence[Sequence[int]], play: Play) -> list[float]:
    found = [0.0]
    for text, (sampled, logprobs) in zip(texts, play(model, texts), strict=True):
        ids = torch.tensor([[*text, *sampled]], device=next(model.parameters()).device)
        every = model(input_ids=ids, use_cache=False).logits[0].float().log_softmax(-1)
        for place, (token, logprob) in enumerate(zip(sampled, logprobs, strict=True), len(text) - 1):
            own = every[place, token].item()
            if own == own:  # weights that are not finite fail where they are sampled from
                found.append(abs(own - logprob))
    return found

"""Sizes of the models that a plan is made for: parameters, bytes, cache, and work per token, by formula.

All formulas stand in docs/results/performance.md, section Planning.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from roles.errors import UserError
from training.config.model_config import ModelConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A decoder with gated feed-forward layers.

    Example: Shape(hidden=2048, layers=36, heads=16, kv_heads=2, head_size=128, inner=11008, vocab=151936,
                   is_tied=True).num_parameters is about 3.1e9
    """

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    inner: int  # width of the feed-forward layers
    vocab: int
    is_tied: bool  # whether input and output embeddings are one matrix

    @property
    def layer_matrices(self) -> tuple[tuple[int, int], ...]:
        """(in, out) of the seven linear maps of a layer."""
        query, key = self.heads * self.head_size, self.kv_heads * self.head_size
        d, f = self.hidden, self.inner
        return ((d, query), (d, key), (d, key), (query, d), (d, f), (d, f), (f, d))

    @property
    def num_parameters(self) -> int:
        """All weights; norms and biases, well under 0.1 %, are left out."""
        embeddings = self.vocab * self.hidden * (1 if self.is_tied else 2)
        return embeddings + self.num_layer_parameters

    @property
    def layer_parameters(self) -> int:
        """Weights of one layer."""
        return sum(a * b for a, b in self.layer_matrices)

    @property
    def num_layer_parameters(self) -> int:
        """Weights of all layers, embeddings and head left out."""
        return self.layers * self.layer_parameters

    @property
    def num_working(self) -> int:
        """Weights that a token is multiplied with: the layers and the output head."""
        return self.vocab * self.hidden + self.num_layer_parameters

    def lora_parameters(self, rank: int) -> int:
        """Two factors on every linear map of every layer."""
        return self.layers * sum(rank * (a + b) for a, b in self.layer_matrices)

    def cache_bytes(self, bytes_per_value: int) -> int:
        """Keys and values of one token."""
        return 2 * self.layers * self.kv_heads * self.head_size * bytes_per_value


SHAPES = {
    "smollm2-135m": Shape(
        hidden=576, layers=30, heads=9, kv_heads=3, head_size=64, inner=1536, vocab=49152, is_tied=True
    ),
    "qwen2.5-0.5b": Shape(
        hidden=896, layers=24, heads=14, kv_heads=2, head_size=64, inner=4864, vocab=151936, is_tied=True
    ),
    "qwen2.5-1.5b": Shape(
        hidden=1536, layers=28, heads=12, kv_heads=2, head_size=128, inner=8960, vocab=151936, is_tied=True
    ),
    "qwen2.5-3b": Shape(
        hidden=2048, layers=36, heads=16, kv_heads=2, head_size=128, inner=11008, vocab=151936, is_tied=True
    ),
    "qwen2.5-7b": Shape(
        hidden=3584, layers=28, heads=28, kv_heads=4, head_size=128, inner=18944, vocab=152064, is_tied=False
    ),
}


def find_shape(config: ModelConfig) -> Shape:
    """The sizes of a config's model; of a folder from its config.json, of the hub only the named presets.

    Raises:
        UserError: sizes that are not known without loading the model.
    """
    if config.preset == "tiny":
        return Shape(
            hidden=config.hidden_size,
            layers=config.num_layers,
            heads=config.num_heads,
            kv_heads=config.num_heads,
            head_size=config.hidden_size // config.num_heads,
            inner=config.intermediate_size,
            vocab=config.vocab_size,
            is_tied=True,
        )
    if config.preset in SHAPES:
        return SHAPES[config.preset]
    return _read_shape(Path(config.preset))


def _read_shape(folder: Path) -> Shape:
    try:
        values = json.loads((folder / "config.json").read_bytes())
        heads = int(values["num_attention_heads"])
        return Shape(
            hidden=int(values["hidden_size"]),
            layers=int(values["num_hidden_layers"]),
            heads=heads,
            kv_heads=int(values.get("num_key_value_heads", heads)),
            head_size=int(values.get("head_dim") or int(values["hidden_size"]) // heads),
            inner=int(values["intermediate_size"]),
            vocab=int(values["vocab_size"]),
            is_tied=bool(values.get("tie_word_embeddings", False)),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        known = ", ".join(["tiny", *SHAPES])
        raise UserError(
            f"the sizes of model {str(folder)!r} are not known: use a preset ({known})"
            " or a folder with config.json"
        ) from None

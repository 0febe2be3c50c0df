"""A frozen base and one adapter as one model: what programs without adapters load."""

from pathlib import Path
from typing import Any

from simulator.engines.adapter_names import SINGLE
from training.models.adapters import load_adapters
from training.models.strict_loading import load_model, load_tokenizer


def write_merged(base: Path, adapter: Path, target: Path) -> None:
    """Write the model that `base` with `adapter` is, in the base's precision, and its tokenizer."""
    model: Any = load_adapters(load_model(base, dtype="auto"), {SINGLE: adapter})
    model.merge_and_unload(safe_merge=True).save_pretrained(target)
    load_tokenizer(base).save_pretrained(target)

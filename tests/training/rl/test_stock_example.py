"""The example of stock TRL trains a step on our environment, and stays short."""

import importlib.util
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from tiny_models import small_model, tiny_tokenizer

EXAMPLE = Path(__file__).parent.parent.parent.parent / "examples" / "stock_grpo.py"


def load_example() -> Any:
    spec = importlib.util.spec_from_file_location("stock_grpo", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_stock_trl_plays_a_step_on_our_environment(tmp_path: Path) -> None:
    small_model().save_pretrained(tmp_path / "model")
    tiny_tokenizer().save_pretrained(tmp_path / "model")
    reward = load_example().train(
        str(tmp_path / "model"), "cost", 1, tmp_path / "out", size=2, most_tokens=16
    )
    assert reward == 0.0  # random weights answer nothing, and the verifier says so
    saved = load_file(tmp_path / "out" / "model.safetensors")
    assert all(torch.isfinite(value).all() for value in saved.values())


def test_the_example_fits_60_lines() -> None:
    assert len(EXAMPLE.read_text().splitlines()) <= 60

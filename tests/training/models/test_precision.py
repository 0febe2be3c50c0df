"""Advice on the precision of a frozen base, by what this CPU multiplies faster."""

import logging
from pathlib import Path

import pytest
from tiny_models import make_untrained_run

from training.config.loading import load_config
from training.models import precision
from training.models.precision import PRECISIONS, advise_precision, seconds_of_product
from training.runs.run_folder import Run
from training.stages.base import train_base


@pytest.mark.parametrize(
    ("dtype", "seconds", "said"),
    [
        ("float32", (3.0, 1.0), "multiplies 3.0 times as fast in bfloat16"),
        ("bfloat16", (1.0, 2.0), "multiplies 2.0 times as fast in float32"),
        ("float32", (1.4, 1.0), ""),
        ("bfloat16", (3.0, 1.0), ""),
    ],
)
def test_advice_names_a_much_faster_precision(
    dtype: str, seconds: tuple[float, float], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "seconds_of_product", dict(zip(PRECISIONS, seconds, strict=True)).get)
    advice = advise_precision(dtype)
    assert said in advice
    assert bool(advice) == bool(said)


def test_a_larger_product_takes_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    small = [seconds_of_product(dtype) for dtype in PRECISIONS]
    monkeypatch.setattr(precision, "ROWS", 16 * precision.ROWS)
    assert all(seconds_of_product(dtype) > one > 0 for dtype, one in zip(PRECISIONS, small, strict=True))


@pytest.mark.parametrize("adapter", ["lora", "none"])
def test_a_run_on_a_pretrained_base_says_so_where_the_precision_is_free(
    tmp_path: Path, adapter: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    base = make_untrained_run(tmp_path / "other") / "checkpoints" / "base" / "step_0"
    monkeypatch.setattr(precision, "seconds_of_product", {"float32": 2.0, "bfloat16": 1.0}.get)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    settings = [f"model.preset={base}", f"model.adapter={adapter}"]
    run = Run.create(tmp_path / "run", load_config(None, settings))
    with caplog.at_level(logging.WARNING):
        train_base(run.path)
    assert ("model.dtype=bfloat16" in caplog.text) == (adapter == "lora")

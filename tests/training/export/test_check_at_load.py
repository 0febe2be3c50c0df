"""An exported team is compared with its models' own passes as it is loaded, on texts past a window."""

from pathlib import Path
from typing import Any

import pytest
from model_zoo import FAMILIES, WINDOW, make_model, make_tokenizer

from emads.run_weights import load_run_weights
from roles.errors import UserError
from simulator.engines.embedded import own_pass
from simulator.engines.embedded.engine import TransformersEngine
from simulator.engines.embedded.engine_check import check_engine
from simulator.engines.embedded.kv_window import KVWindow
from training.config.loading import load_config
from training.export.export import export_team
from training.models.weights import save_weights
from training.runs.run_folder import Run


def make_windowed(**settings: Any) -> tuple[Any, Any]:
    family = FAMILIES["Mistral"]
    tokenizer = make_tokenizer(family)
    model = make_model(family, tokenizer)
    for name, value in settings.items():
        setattr(model.config, name, value)
    return model, tokenizer


def drop_windows(patch: pytest.MonkeyPatch) -> None:
    """Let the engine take its batched steps, which know no window, for right."""
    patch.setattr(own_pass, "known", {})
    patch.setattr(TransformersEngine, "_is_right_for", lambda self, model: True)


def test_a_team_whose_window_is_dropped_by_hand_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run.create(tmp_path / "run", load_config(None, ("name=window", "model.adapter_sharing=shared")))
    save_weights(run, "marl", "team", *make_windowed(), step=1)
    folder = export_team(run, tmp_path / "to").path
    assert load_run_weights(folder, "marl").label
    drop_windows(monkeypatch)
    with pytest.raises(UserError, match=r"mistral: the embedded engine samples .* are off by"):
        load_run_weights(folder, "marl")


def test_the_text_of_the_check_is_longer_than_the_window_where_positions_allow_it() -> None:
    model, _ = make_windowed()
    assert len(own_pass.long_text(model)) > WINDOW
    model.config.sliding_window = 100
    assert len(own_pass.long_text(model)) > 100
    model.config.max_position_embeddings = 64
    assert len(own_pass.long_text(model)) == 64 - own_pass.ROOM
    model.config.sliding_window = None
    assert own_pass.find_window(model) is None


def test_a_step_that_forgets_a_column_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second turn goes on from the cache of the first."""
    model, _ = make_windowed(sliding_window=None)
    assert check_engine({"cto": model}) < 1e-4
    squeeze = KVWindow.squeeze

    def forget(window: KVWindow) -> None:
        squeeze(window)
        if window.valid.numel():
            window.valid[:, 0] = False

    monkeypatch.setattr(KVWindow, "squeeze", forget)
    monkeypatch.setattr(own_pass, "known", {own_pass.config_key(model): True})
    with pytest.raises(UserError, match="off by"):
        check_engine({"cto": model})

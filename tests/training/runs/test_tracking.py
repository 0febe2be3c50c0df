"""Trackers hold what metrics.jsonl holds, read back from their own files; one that fails harms nothing."""

import json
import math
import os
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from roles.errors import UserError
from training.config.loading import load_config
from training.runs.run_folder import Run
from training.runs.tracking import check_trackers

Found = dict[str, dict[str, list[tuple[int, float]]]]  # stage -> metric -> (step, value)


def read_tensorboard(path: Path) -> Found:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found: Found = {}
    folder = path / "tensorboard"
    for file in folder.rglob("events.*"):
        events = EventAccumulator(str(file.parent)).Reload()
        found[str(file.parent.relative_to(folder))] = {
            name: [(one.step, one.value) for one in events.Scalars(name)] for name in events.Tags()["scalars"]
        }
    return found


def read_mlflow(path: Path) -> Found:
    import mlflow

    client = mlflow.MlflowClient(f"sqlite:///{path.parent}/mlflow.db")
    (experiment,) = [one for one in client.search_experiments() if one.name == "small"]
    runs = {one.info.run_name: one for one in client.search_runs([experiment.experiment_id])}
    assert {one.info.status for one in runs.values()} == {"FINISHED"}
    assert runs["marl"].data.params["marl.credit.scheme"] == load_config().marl.credit.scheme
    return {
        stage: {
            name: [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, name)]
            for name in run.data.metrics
        }
        for stage, run in runs.items()
    }


def read_records(file: Path) -> Iterator[bytes]:
    """The records of a W&B file: 7 bytes, then LevelDB's log format, for which the package has no reader."""
    data, place, whole = file.read_bytes(), 7, b""
    while place + 7 <= len(data):
        if (left := 32768 - place % 32768) < 7:
            place += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, place)
        whole, place = whole + data[place + 7 : place + 7 + length], place + 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield whole
            whole = b""


def read_wandb(path: Path) -> Found:
    from wandb.proto.wandb_internal_pb2 import Record

    found: Found = {}
    for file in path.rglob("*.wandb"):
        stage = ""
        for record in map(Record.FromString, read_records(file)):
            stage = record.run.display_name or stage
            if not record.HasField("history"):
                continue
            items = {one.key or "/".join(one.nested_key): one.value_json for one in record.history.item}
            row = {name: json.loads(value) for name, value in items.items()}
            for name in row:
                if not name.startswith("_"):
                    found.setdefault(stage, {}).setdefault(name, []).append((row["_step"], row[name]))
    return found


def read_trackio(path: Path) -> Found:
    found: Found = {}
    with sqlite3.connect(path.parent / "trackio" / "small.db") as store:
        rows = store.execute("SELECT run_name, step, metrics FROM metrics ORDER BY step").fetchall()
    for stage, step, metrics in rows:
        for name, value in json.loads(metrics).items():
            found.setdefault(stage, {}).setdefault(name, []).append((step, value))
    return found


READERS: dict[str, Callable[[Path], Found]] = {
    "tensorboard": read_tensorboard,
    "mlflow": read_mlflow,
    "wandb": read_wandb,
    "trackio": read_trackio,
}


@pytest.fixture(scope="module")
def tracked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a small team whose stages were trained by a process that reports to all that is installed."""
    path = tmp_path_factory.mktemp("tracked") / "run"
    places = {
        "MLFLOW_TRACKING_URI": f"sqlite:///{path.parent}/mlflow.db",
        "TRACKIO_DIR": str(path.parent / "trackio"),
        "WANDB_MODE": "offline",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    names = ",".join(name for name in READERS if find_spec(name))
    settings = (f"report_to=[{names}]", "grpo.max_steps=1")
    code = "import sys; from pathlib import Path; from trained_team import train_small_team as train\n"
    code += "train(Path(sys.argv[1]), *sys.argv[2:])"
    trained = subprocess.run(
        [sys.executable, "-c", code, str(path), *settings],
        env=os.environ | places,
        cwd=path.parent,
        capture_output=True,
        text=True,
    )
    assert trained.returncode == 0, trained.stderr[-3000:]
    assert "gets no more metrics" not in trained.stderr
    return path


@pytest.mark.slow
@pytest.mark.parametrize("tracker", READERS)
def test_every_metric_of_every_stage_is_in_the_tracker(tracker: str, tracked: Path) -> None:
    pytest.importorskip(tracker)
    logged: dict[str, dict[str, list[tuple[int, Any]]]] = {}
    for row in Run.open(tracked).read_metrics():
        for name, value in row.metrics.items():
            logged.setdefault(row.stage, {}).setdefault(name, []).append((row.step, pytest.approx(value)))
    assert {stage.split("/")[0] for stage in logged} == {"sft", "grpo", "marl"}
    assert READERS[tracker](tracked) == logged


def test_a_tracker_that_fails_is_left_out_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tensorboard")
    run = Run.create(tmp_path / "run", load_config(None, ("report_to=[tensorboard]",)))
    (tmp_path / "run/tensorboard").write_text("no folder")
    run.log("marl", 1, {"loss": math.nan})
    run.log("marl", 2, {"loss": 1.0})
    assert [row.step for row in run.read_metrics("marl")] == [1, 2]
    told = capsys.readouterr().err
    assert told.count("note: tensorboard failed") == 1
    assert "metrics.jsonl" in told


def test_a_tracker_that_is_not_installed_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    missing = [name for name in ("wandb", "mlflow", "trackio", "tensorboard") if find_spec(name) is None]
    if not missing:
        pytest.skip("all are installed")
    with pytest.raises(UserError, match=f"pip install {missing[0]}"):
        Run.create(tmp_path / "run", load_config(None, (f"report_to=[{missing[0]}]",)))
    assert not (tmp_path / "run").exists()
    check_trackers(())


def test_a_tracker_may_be_added_to_a_run_that_goes_on(tmp_path: Path) -> None:
    with_none, with_one = (load_config(None, (f"report_to={names}",)) for names in ("[]", "[tensorboard]"))
    one, other = Run.create(tmp_path / "a", with_none), Run(path=tmp_path / "a", config=with_one)
    assert one.digest == other.digest

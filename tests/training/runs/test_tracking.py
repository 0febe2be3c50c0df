"""Trackers get what metrics.jsonl gets, read back through their own readers; one that fails harms nothing."""

import json
import math
import struct
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from trained_team import train_small_team

from roles.errors import UserError
from training.config.loading import load_config
from training.runs.run_folder import Run
from training.runs.tracking import check_trackers

LOGGED = {
    "sft/cto": [(1, {"loss": 0.5}), (2, {"loss": 0.25, "validation/loss": 0.75})],
    "marl": [(1, {"kl/cto": 2.0})],
}
Found = dict[str, dict[str, list[tuple[int, float]]]]  # stage -> metric -> (step, value)


def log(path: Path, tracker: str) -> Found:
    """Log LOGGED to a run that reports to the tracker, and return it in the form of the readers below."""
    run = Run.create(path, load_config(None, ("name=tracked", f"report_to=[{tracker}]")))
    found: Found = {}
    for stage, rows in LOGGED.items():
        for step, metrics in rows:
            run.log(stage, step, metrics)
            for name, value in metrics.items():
                found.setdefault(stage, {}).setdefault(name, []).append((step, value))
        run.mark_done(stage)
    return found


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


def test_tensorboard_gets_every_metric_under_its_own_name(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    assert log(tmp_path / "run", "tensorboard") == read_tensorboard(tmp_path / "run")


def test_mlflow_gets_every_metric_and_the_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/m.db")
    monkeypatch.chdir(tmp_path)
    logged = log(tmp_path / "run", "mlflow")
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path}/m.db")
    (experiment,) = [one for one in client.search_experiments() if one.name == "tracked"]
    runs = {one.info.run_name: one for one in client.search_runs([experiment.experiment_id])}
    assert logged == {
        stage: {
            name: [(one.step, one.value) for one in client.get_metric_history(found.info.run_id, name)]
            for name in found.data.metrics
        }
        for stage, found in runs.items()
    }
    assert {found.info.status for found in runs.values()} == {"FINISHED"}
    assert runs["marl"].data.params["marl.credit.scheme"] == load_config().marl.credit.scheme


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


def test_wandb_offline_gets_every_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    from wandb.proto.wandb_internal_pb2 import Record

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    logged = log(tmp_path / "run", "wandb")
    wandb.teardown()  # its own process writes until then
    found: Found = {}
    for file in (tmp_path / "run").rglob("*.wandb"):
        stage, rows = "", []
        for record in map(Record.FromString, read_records(file)):
            stage = record.run.display_name or stage
            if record.HasField("history"):
                items = record.history.item
                rows.append(
                    {one.key or "/".join(one.nested_key): json.loads(one.value_json) for one in items}
                )
        metrics = {name for row in rows for name in row if not name.startswith("_")}
        found[stage] = {name: [(row["_step"], row[name]) for row in rows if name in row] for name in metrics}
    assert found == logged


def test_trackio_gets_every_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    pytest.importorskip("trackio")
    from trackio.sqlite_storage import SQLiteStorage

    logged = log(tmp_path / "run", "trackio")
    found: Found = {}
    for stage in SQLiteStorage.get_runs("tracked"):
        for row in SQLiteStorage.get_logs("tracked", stage):
            for name in row.keys() - {"step", "timestamp"}:
                found.setdefault(stage, {}).setdefault(name, []).append((row["step"], row[name]))
    assert found == logged


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


@pytest.mark.slow
def test_every_stage_of_training_reports_what_it_logs(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    path = train_small_team(tmp_path / "run", "report_to=[tensorboard]", "grpo.max_steps=1")
    logged: dict[str, set[str]] = {}
    for row in Run.open(path).read_metrics():
        logged.setdefault(row.stage, set()).update(row.metrics)
    assert {stage.split("/")[0] for stage in logged} == {"sft", "grpo", "marl"}
    assert {stage: set(metrics) for stage, metrics in read_tensorboard(path).items()} == logged

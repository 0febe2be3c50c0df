"""Metrics of a run in TensorBoard, W&B, MLflow and Trackio (`report_to`), through accelerate's trackers.

Every stage is one run of a tracker: its project (MLflow: experiment) is the run's name, its name the stage's,
and its metrics have the names of metrics.jsonl. A resumed stage goes on as a further run of the same name.
Where a tracker keeps what it gets is its own affair (WANDB_MODE, MLFLOW_TRACKING_URI, TRACKIO_DIR);
TensorBoard's files stand in RUN/tensorboard. A tracker that fails is left out: metrics.jsonl holds all.
"""

import atexit
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from roles.errors import UserError
from training.config.run_config import RunConfig
from training.runs.checkpoints import lock_folder


@dataclass(slots=True, kw_only=True)
class _Tracked:
    """The stage that this process reports on, and the trackers that still take its metrics."""

    path: Path
    stage: str
    trackers: list[Any]

    def tell(self, what: Callable[[Any], None]) -> None:
        """Do something with every tracker; one that fails gets nothing more."""
        for tracker in list(self.trackers):
            try:
                what(tracker)
            except Exception as error:  # other programs and networks fail in their own ways
                self.trackers.remove(tracker)
                print(
                    f"note: {tracker.name} failed ({type(error).__name__}: {error}) and gets no more metrics"
                    f" of {self.stage}; all are in {self.path / 'metrics.jsonl'}",
                    file=sys.stderr,
                )


_tracked: _Tracked | None = None


def check_trackers(names: Sequence[str]) -> None:
    """Refuse, with a UserError, trackers that are not installed."""
    for name in names:
        if find_spec(name) is None:
            raise UserError(
                f"report_to names {name}, which is not installed; pip install {name}, or leave it out"
            )


def track(path: Path, config: RunConfig, stage: str, step: int, metrics: Mapping[str, float]) -> None:
    """Report metrics of a stage; the first ones open its trackers, those of another stage close them."""
    global _tracked
    if not config.report_to:
        return
    if _tracked is None or (_tracked.path, _tracked.stage) != (path, stage):
        stop_tracking()
        atexit.register(stop_tracking)
        trackers = [_make_tracker(name, path, config, stage, step) for name in config.report_to]
        _tracked = _Tracked(path=path, stage=stage, trackers=trackers)
        with lock_folder(path.parent):  # two that begin at once would both make the project
            _tracked.tell(lambda tracker: _start(tracker, config))
    _tracked.tell(lambda tracker: tracker.log(dict(metrics), step=step))


def stop_tracking() -> None:
    """Close the trackers of this process."""
    global _tracked
    if _tracked is not None:
        _tracked.tell(lambda tracker: tracker.finish())
        _tracked = None


def _make_tracker(name: str, path: Path, config: RunConfig, stage: str, step: int) -> Any:
    from accelerate import PartialState, tracking

    PartialState()  # without it the trackers do not run
    project, named = config.name, {"name": stage, "group": path.resolve().name}
    if name == "tensorboard":
        folder = path / "tensorboard"
        tracker: Any = tracking.TensorBoardTracker(stage, folder, purge_step=step)
    elif name == "mlflow":
        tags = {"group": named["group"]}
        tracker = tracking.MLflowTracker(project, run_name=stage, tags=tags)
    elif name == "wandb":
        tracker = tracking.WandBTracker(project, **named, dir=str(path), config=_flatten(config))
    else:
        tracker = tracking.TrackioTracker(project, **named, config=_flatten(config))
    tracker.main_process_only = False  # of several ranks one alone logs
    return tracker


def _start(tracker: Any, config: RunConfig) -> None:
    tracker.start()
    if tracker.name == "mlflow":  # the others are given it at once, or have no place for it
        tracker.store_init_configuration(_flatten(config))


def _flatten(config: RunConfig) -> dict[str, Any]:
    """Return the config as one mapping: {"grpo.loss.kind": "dapo", ...}."""

    def walk(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
        if isinstance(value, dict):
            for key, inner in value.items():
                yield from walk(f"{prefix}.{key}" if prefix else key, inner)
        else:
            yield prefix, str(value) if isinstance(value, list) else value

    return dict(walk("", config.model_dump(mode="json")))

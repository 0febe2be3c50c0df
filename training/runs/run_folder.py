"""A run is a folder: resolved config, provenance, metrics, finished stages. It refuses another run's folder.

config.yaml        the resolved configuration
provenance.json    versions, platform, revision, seeds, config digest
metrics.jsonl      one line per log call: {"stage", "step", "time_s", "metrics": {...}}
stages/NAME.json   written when a stage is finished: {"stage", "time_s", "payload": {...}}
checkpoints/       see training/runs/checkpoints.py
"""

import importlib.metadata
import platform
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from roles.errors import UserError
from simulator.export.atomic_files import encode_json, explain_os_errors, read_json, write_atomic
from simulator.line_files import LineFile, read_lines
from training.config.loading import load_config, read_config_file, render_config
from training.config.run_config import RunConfig, compute_digest, digest_values
from training.runs.checkpoints import lock_folder
from training.runs.tracking import check_trackers, stop_tracking, track

PACKAGES = (
    "accelerate", "datasets", "emads", "langgraph", "networkx", "numpy", "ortools", "peft", "pyarrow",
    "pydantic", "safetensors", "scipy", "tokenizers", "torch", "transformers", "trl", "vllm",
)  # fmt: skip


def find_versions() -> dict[str, str | None]:
    """Installed version of each package that can change a result; None where it is not installed."""
    versions: dict[str, str | None] = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    return versions


def find_revision() -> str | None:
    """The git commit of the source tree, "+changes" if tracked files differ; None outside a clone."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        commit = _git(root, "rev-parse", "HEAD").strip()
        return f"{commit}+changes" if _git(root, "status", "--porcelain", "--untracked-files=no") else commit
    except (OSError, subprocess.SubprocessError):
        return None


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout


def describe_provenance(config: RunConfig) -> dict[str, Any]:
    """The content of provenance.json."""
    return {
        "created_s": time.time(),
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "machine": platform.machine(),
        "packages": find_versions(),
        "revision": find_revision(),
        "seeds": {"run": config.seed, "data": config.data.seed},
        "config_sha256": compute_digest(config),
    }


STARTED = frozenset({"config.yaml", "provenance.json"})  # what a run folder begins with
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*")
METRICS = "metrics.jsonl"


class MetricRow(BaseModel):
    """One line of metrics.jsonl; JSON has no NaN, so values that are not finite are text there.

    Example: MetricRow(stage="sft/cto", step=20, time_s=1.7e9, metrics={"loss": 0.31})
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, ser_json_inf_nan="strings")

    stage: str
    step: int
    time_s: float  # Unix time of the log call
    metrics: dict[str, Annotated[float, Field(strict=False)]]  # may hold NaN: a diverged run shows it


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """An opened run folder.

    Example: Run.create(Path("runs/trial"), RunConfig()).log("sft/cto", 20, {"loss": 0.31})
    """

    path: Path
    config: RunConfig  # as stored in the folder

    @classmethod
    def create(cls, path: Path, config: RunConfig, *, resume: bool = False) -> Self:
        """Make the folder, or open it where it already holds a run of an equal config.

        With `resume` a folder of another config is opened too, and keeps its own config. A folder of another
        config in which nothing was made yet (a start that failed) becomes the new run's.

        Raises:
            UserError: another config without `resume`, a folder that is no run, not writable, disk full, or
                a tracker that is not installed.
        """
        check_trackers(config.report_to)
        if (path / "config.yaml").exists():
            run = cls.open(path)
            if run.config == config or resume:
                return run
            if _list_made(path):
                raise UserError(
                    f"run folder {path} was made with another config"
                    f" ({_first_difference(run.config, config)});"
                    " choose another folder, or --resume to go on with the stored config"
                )
        with explain_os_errors("write run folder", path):
            path.mkdir(parents=True, exist_ok=True)
            if _list_made(path):
                raise UserError(
                    f"{path} is not empty and not a run folder (no config.yaml); choose another folder"
                )
            write_atomic(path / "provenance.json", encode_json(describe_provenance(config)))
            write_atomic(path / "config.yaml", render_config(config).encode())
        return cls(path=path, config=config)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open an existing run.

        Raises:
            UserError: no such run, or a damaged config.yaml.
        """
        if not (path / "config.yaml").is_file():
            raise UserError(f"no run in {path} (no config.yaml there); start one with `emads demo {path}`")
        return cls(path=path, config=load_config(path / "config.yaml"))

    @property
    def digest(self) -> str:
        """sha256 of the config as stored in the folder; names the run in checkpoint manifests.

        Raises:
            UserError: config.yaml is not the one with which the run began, whose weights are in the folder.
        """
        digest = digest_values(read_config_file(self.path / "config.yaml"))
        file = self.path / "provenance.json"
        provenance = read_json(file) if file.is_file() else None
        if isinstance(provenance, dict) and provenance.get("config_sha256", digest) != digest:
            raise UserError(
                f"{self.path / 'config.yaml'} was edited after the run had begun, and its weights are of"
                " the config before; undo that, or begin another run with the edited copy: --config COPY"
                f" --take-from {self.path}, and marl.start_from={self.path} for more steps of joint training"
            )
        return digest

    def add_provenance(self, **facts: float) -> None:
        """Add what was found out about this run's base to provenance.json; it may have been lost."""
        file = self.path / "provenance.json"
        if file.is_file() and isinstance(known := read_json(file), dict):
            with explain_os_errors("write", file):
                write_atomic(file, encode_json({**known, **facts}))

    def log(self, stage: str, step: int, metrics: Mapping[str, float]) -> None:
        """Append one line to metrics.jsonl, and tell the trackers of `report_to`.

        A line that a kill cut short is dropped first. Safe from several processes at once.

        Raises:
            UserError: the disk is full; the file then holds what it held before.
        """
        row = MetricRow(
            stage=stage,
            step=step,
            time_s=time.time(),
            metrics={name: float(value) for name, value in metrics.items()},
        )
        path = self.path / METRICS
        with explain_os_errors("write metrics", path), lock_folder(self.path), LineFile(path) as file:
            file.add(row.model_dump_json().encode())
        track(self.path, self.config, stage, step, metrics)

    def read_metrics(self, stage: str | None = None) -> list[MetricRow]:
        """All rows in order, or those of one stage; a last line that a kill cut short is left out.

        Raises:
            UserError: a corrupt line before the last, naming file and line.
        """
        path = self.path / METRICS
        rows = []
        for number, line in enumerate(read_lines(path), start=1):
            try:
                row = MetricRow.model_validate_json(line)
            except ValidationError as error:
                raise UserError(
                    f"{path}:{number}: corrupt metrics line ({error.errors()[0]['msg']}); delete that line"
                ) from None
            if stage is None or row.stage == stage:
                rows.append(row)
        return rows

    def rewind_metrics(self, stage: str, step: int) -> None:
        """Drop the stage's rows after `step`: what a resumed stage is about to log again.

        Safe while other processes log to this run.
        """
        path = self.path / METRICS
        if not any(row.step > step for row in self.read_metrics(stage)):
            return
        with explain_os_errors("write metrics", path), lock_folder(self.path):
            kept = [row for row in self.read_metrics() if row.stage != stage or row.step <= step]
            write_atomic(path, "".join(f"{row.model_dump_json()}\n" for row in kept))

    def mark_done(self, stage: str, payload: Mapping[str, Any] | None = None) -> None:
        """Record that a stage is finished, with what later stages want to know of it (JSON values)."""
        record = {"stage": stage, "time_s": time.time(), "payload": dict(payload or {})}
        self.write_json(f"stages/{stage}.json", record)
        stop_tracking()

    def is_done(self, stage: str) -> bool:
        """Return whether `mark_done` was called for the stage."""
        return self._locate(f"stages/{stage}.json").is_file()

    def read_payload(self, stage: str) -> dict[str, Any]:
        """The payload that `mark_done` stored.

        Raises:
            UserError: the stage is not finished, or its file is damaged.
        """
        path = self._locate(f"stages/{stage}.json")
        if not path.is_file():
            raise UserError(f"stage {stage!r} of run {self.path} is not finished")
        record = read_json(path)
        if not isinstance(record, dict) or not isinstance(record.get("payload"), dict):
            raise UserError(f"{path} is not a stage record; delete it to run the stage again")
        return dict(record["payload"])

    def write_json(self, name: str, value: Any) -> Path:
        """Write a JSON file of the run (`name` may contain folders) atomically and return its path."""
        path = self._locate(name)
        with explain_os_errors("write", path):
            write_atomic(path, encode_json(value))
        return path

    def read_json(self, name: str) -> Any:
        """The value that `write_json` stored; UserError: missing or damaged."""
        return read_json(self._locate(name))

    def _locate(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a file name inside a run (letters, digits, _ . - and /)")
        return self.path / name


def _list_made(path: Path) -> list[Path]:
    """The files in a folder that are no rest of a start that failed."""
    return [
        file
        for file in path.rglob("*")
        if file.is_file() and file.name not in STARTED and not file.name.startswith(".tmp-")
    ]


def _first_difference(stored: BaseModel, wanted: BaseModel, prefix: str = "") -> str:
    """The first key in which two configs differ, with both values: "grpo.max_steps is 60 there, 20 here"."""
    for name in type(stored).model_fields:
        there, here = getattr(stored, name), getattr(wanted, name)
        if there == here:
            continue
        if isinstance(there, BaseModel):
            return _first_difference(there, here, f"{prefix}{name}.")
        return f"{prefix}{name} is {there!r} there, {here!r} here"
    return "no difference"

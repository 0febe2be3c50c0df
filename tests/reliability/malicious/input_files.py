"""S1: malicious files that people hand each other besides weights, and files that exhaust a reader."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path

from evaluation.scoring.outcomes import OutcomeFile, RoleOutcome
from evaluation.summary.gates import read_gate_file
from reliability.malicious.model_files import MODEL_PROBES, template
from reliability.malicious.probes import Payload, Probe, model_folder, prepared_run, try_file
from reliability.stages.prepared_runs import PreparedRuns
from reliability.trials import Trial, Trials
from training.config.loading import load_config
from training.data.tasks import read_tasks
from training.models.base_model import load_pretrained
from training.runs.checkpoints import publish, verify
from training.runs.run_folder import Run
from training.runs.state_files import read_state

DEPTH = 100_000  # brackets, far more than a parser's stack holds


def _gate_file(text: str) -> Callable[[Path, Path], None]:
    def attack(folder: Path, marker: Path) -> None:
        (folder / "gates.yaml").write_text(text.replace("MARKER", str(marker)))
        read_gate_file(folder / "gates.yaml")

    return attack


def _deep_config(folder: Path, marker: Path) -> None:
    (folder / "config.yaml").write_text("name: " + "[" * DEPTH)
    load_config(folder / "config.yaml")


def _deep_override(folder: Path, marker: Path) -> None:
    load_config(None, ["name=" + "[" * DEPTH])


def _deep_metrics(folder: Path, marker: Path) -> None:
    run = prepared_run(folder / "run")
    (run.path / "metrics.jsonl").write_text('{"stage":' * DEPTH + "\n{}\n")
    run.read_metrics()


def _deep_scores(folder: Path, marker: Path) -> None:
    (folder / "scores.jsonl").write_text("[" * DEPTH + "]" * DEPTH + "\n")
    OutcomeFile(folder / "scores.jsonl", RoleOutcome).read()


def _pickled_scores(folder: Path, marker: Path) -> None:
    (folder / "scores.jsonl").write_bytes(pickle.dumps(Payload(marker)) + b"\n")
    OutcomeFile(folder / "scores.jsonl", RoleOutcome).read()


def _deep_model_file(name: str) -> Callable[[Path, Path], None]:
    def attack(folder: Path, marker: Path) -> None:
        model_folder(folder)
        (folder / name).write_text('{"a":' * DEPTH + "1" + "}" * DEPTH)
        load_pretrained(str(folder))

    return attack


def _write_x(target: Path) -> None:
    (target / "x").write_text("x")


def _pipe(folder: Path, marker: Path) -> None:
    """A reader of the pipe would wait for ever."""
    publish(folder, "step_1", _write_x, run="r", step=1)
    (folder / "step_1" / "x").unlink()
    os.mkfifo(folder / "step_1" / "x")
    verify(folder / "step_1")


def _state_link(folder: Path, marker: Path) -> None:
    (folder / "optimizer.json").symlink_to(folder)
    read_state(folder, "optimizer")


def _task_folder(folder: Path, marker: Path) -> None:
    (folder / "tasks.json").write_bytes(pickle.dumps(Payload(marker)))
    read_tasks(folder)


def _strangers_config(folder: Path, marker: Path) -> None:
    (folder / "config.yaml").write_text(f"model: {{preset: ../../{marker.name}}}\n")
    Run.open(folder)


OBJECT = '- {metric: !!python/object/apply:os.system ["touch MARKER"], least: 0}\n'
INPUT_PROBES: dict[str, Probe] = {
    "gate file: YAML object": Probe(attack=_gate_file(OBJECT)),
    "gate file: deep nesting": Probe(attack=_gate_file("[" * DEPTH)),
    "config: deep nesting": Probe(attack=_deep_config),
    "override: deep nesting": Probe(attack=_deep_override),
    "metrics: deep nesting": Probe(attack=_deep_metrics),
    "scores: deep nesting": Probe(attack=_deep_scores),
    "scores: pickle": Probe(attack=_pickled_scores),
    "model config: deep nesting": Probe(attack=_deep_model_file("config.json")),
    "tokenizer: deep nesting": Probe(attack=_deep_model_file("tokenizer.json")),
    "chat template: endless range": Probe(attack=template("{% for i in range(10**12) %}x{% endfor %}")),
    "chat template: file": Probe(attack=template("{% include '/etc/hostname' %}")),
    "checkpoint: named pipe": Probe(attack=_pipe),
    "state: link to a folder": Probe(attack=_state_link),
    "task folder: pickle": Probe(attack=_task_folder),
    "config: model outside the hub": Probe(attack=_strangers_config, may_load=True),
}


PROBES = MODEL_PROBES | INPUT_PROBES


def malicious_files(runs: PreparedRuns, count: int) -> Trials:
    """Yield every malicious file."""
    for name, probe in PROBES.items():

        def call(name: str = name, probe: Probe = probe) -> str:
            return try_file(runs.fresh(f"malicious-{name}"), probe)

        yield Trial(name, "refused", call)

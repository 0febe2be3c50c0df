"""Alarms of a run's stages: what is shown while they train, and what stays in the run folder."""

from collections.abc import Mapping

from roles.registry import ROLES
from simulator.engines.adapter_names import SHARED
from training.runs import Run


def list_alarms(metrics: Mapping[str, float]) -> dict[str, float]:
    """What the progress line shows: the alarms that stand, by name; nothing as long as there are none."""
    return {name: value for name, value in metrics.items() if name.startswith("alarm/") and value}


def write_alarms(run: Run, stage: str, alarms: Mapping[str, str]) -> None:
    """Keep a stage's alarms (RUN/alarms/STAGE.json), also that there were none."""
    run.write_json(f"alarms/{stage}.json", dict(alarms))


def read_alarms(run: Run) -> list[str]:
    """One line per alarm of the run's GRPO stages, e.g. "grpo/cto kl_runaway: KL ... is 0.81 nats"."""
    lines = []
    for owner in (*ROLES, SHARED):
        name = f"alarms/grpo/{owner}.json"
        if (run.path / name).is_file():
            lines += [f"grpo/{owner} {alarm}: {seen}" for alarm, seen in run.read_json(name).items()]
    return lines

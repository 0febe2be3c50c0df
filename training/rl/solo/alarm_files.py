"""Alarms of GRPO stages in the run folder: writing and reading RUN/alarms/STAGE.json."""

from collections.abc import Mapping

from roles.registry import ROLES
from simulator.engines.adapter_names import SHARED
from training.runs.run_folder import Run


def list_alarms(metrics: Mapping[str, float]) -> dict[str, float]:
    """The alarms that went off, by name, for the progress line."""
    return {name: value for name, value in metrics.items() if name.startswith("alarm/") and value}


def write_alarms(run: Run, stage: str, alarms: Mapping[str, str]) -> None:
    """Write a stage's alarms to RUN/alarms/STAGE.json, {} where none went off."""
    run.write_json(f"alarms/{stage}.json", dict(alarms))


def alarms_by_stage(run: Run) -> dict[str, dict[str, str]]:
    """The alarms of every GRPO stage that ended, {} where none went off.

    Example: {"grpo/cto": {"kl_runaway": "KL ... is 0.81 nats"}, "grpo/coo": {}}
    """
    stages = [f"grpo/{owner}" for owner in (*ROLES, SHARED)]
    names = {stage: f"alarms/{stage}.json" for stage in stages}
    return {stage: run.read_json(name) for stage, name in names.items() if (run.path / name).is_file()}


def read_alarms(run: Run) -> list[str]:
    """One line per alarm of the run's GRPO stages, e.g. "grpo/cto kl_runaway: KL ... is 0.81 nats"."""
    found = alarms_by_stage(run)
    return [f"{stage} {alarm}: {seen}" for stage, alarms in found.items() for alarm, seen in alarms.items()]

"""`emads export` and `emads verify`: what is written and found, in lines."""

from pathlib import Path
from typing import Any

from training.export.export import (
    check_target,
    describe_versions,
    export_team,
    find_changes,
    list_serve_commands,
)
from training.export.team_folder import TeamFolder, open_team_folder
from training.models.base_model import quiet_libraries
from training.runs.run_folder import Run


def export_run(run: Path, to: Path, *, stage: Any, with_merged: bool, with_gguf: bool) -> list[str]:
    """Export a run's team; say what it is and how to serve it.

    Raises:
        UserError: as `export_team`.
    """
    check_target(to)
    quiet_libraries()
    folder = export_team(Run.open(run), to, stage=stage, with_merged=with_merged, with_gguf=with_gguf)
    commands = list_serve_commands(folder.record, str(to))
    return [f"exported {to}: {describe_folder(folder)}", *(f"\n{what}:\n{line}" for what, line in commands)]


def verify_folder(path: Path) -> list[str]:
    """Say what an exported team is, after a check of every file.

    Raises:
        UserError: what is damaged, missing or foreign.
    """
    quiet_libraries()
    folder = open_team_folder(path)
    versions = folder.record.versions
    changes = find_changes(versions, describe_versions(folder.record.config.model))
    same = "graph, prompts and verifier are those of this installation"
    others = f"exported by emads {versions.emads}; other here: {', '.join(changes)}"
    return [
        f"{path}: every file is what was exported; {describe_folder(folder)}",
        others if changes else same,
    ]


def describe_folder(folder: TeamFolder) -> str:
    """Return stage, run, weights, sealed score and size of an exported team in one line."""
    record = folder.record
    size = sum(file.stat().st_size for file in folder.path.rglob("*") if file.is_file())
    words = [f"{record.stage} team of run {record.source.run}"]
    words.append(f"{len(record.owners)} {'adapters' if record.weights == 'adapters' else 'models'}")
    words += ["merged models"] * record.merged + ["GGUF files"] * record.gguf
    if record.evaluation is not None and record.evaluation["team"]:
        team = record.evaluation["team"]
        words.append(f"sealed team reward {team['mean']:.3f} on {team['n']} cases")
    return f"{', '.join(words)}; {size / 1e6:.1f} MB"

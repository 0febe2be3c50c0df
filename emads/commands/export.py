"""`emads export` and `emads verify`: what is written and found, in lines."""

from pathlib import Path
from typing import Any

from training.export.card import list_serve_commands
from training.export.export import check_target, export_team
from training.export.team_folder import TeamFolder, open_team_folder
from training.export.versions import describe_versions, find_changes
from training.models.base_model import quiet_libraries
from training.runs.run_folder import Run


def export_run(
    run: Path,
    to: Path,
    *,
    stage: Any,
    with_merged: bool,
    with_gguf: bool,
    push: str | None,
    hub: str | None,
    is_public: bool,
) -> None:
    """Export a run's team, print what it is and how to serve it, and upload it to the repository `push`.

    Raises:
        UserError: as `export_team` and `push_folder`.
    """
    from training.export.push import check_repository, push_folder

    check_target(to)
    if push is not None or hub is not None or is_public:
        check_repository(push, hub)
    quiet_libraries()
    folder = export_team(Run.open(run), to, stage=stage, with_merged=with_merged, with_gguf=with_gguf)
    print(f"exported {to}: {_describe(folder)}")
    for what, command in list_serve_commands(folder.record, str(to)):
        print(f"\n{what}:\n{command}")
    if push is not None:
        print(f"\npushed:   {push_folder(folder, push, hub=hub, is_public=is_public)}")


def verify_folder(path: Path) -> None:
    """Print what an exported team is, after a check of every file.

    Raises:
        UserError: what is damaged, missing or foreign.
    """
    quiet_libraries()
    folder = open_team_folder(path)
    record = folder.record
    print(f"{path}: every file is what was exported; {_describe(folder)}")
    changes = find_changes(record.versions, describe_versions(record.config.model))
    same = "graph, prompts and verifier are those of this installation"
    others = f"exported by emads {record.versions.emads}; other here: {', '.join(changes)}"
    print(others if changes else same)


def _describe(folder: TeamFolder) -> str:
    record = folder.record
    size = sum(file.stat().st_size for file in folder.path.rglob("*") if file.is_file())
    words = [f"{record.stage} team of run {record.source.run}"]
    words.append(f"{len(record.owners)} {'adapters' if record.weights == 'adapters' else 'models'}")
    words += ["merged models"] * record.merged + ["GGUF files"] * record.gguf
    if record.evaluation is not None and record.evaluation["team"]:
        team = record.evaluation["team"]
        words.append(f"sealed team reward {team['mean']:.3f} on {team['n']} cases")
    return f"{', '.join(words)}; {size / 1e6:.1f} MB"

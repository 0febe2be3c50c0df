"""Verbs that take a team out of its run: export and verify."""

from pathlib import Path
from typing import Annotated

import typer

from emads.cli.choices import choose_stage
from emads.cli.options import RunArgument
from emads.commands.new_runs import refuse_missing_run
from roles.errors import UserError


def export(
    run: RunArgument,
    to: Annotated[Path, typer.Option("--to", help="New folder for the team.", show_default=False)],
    stage: Annotated[str, typer.Option(help="Weights after this stage: sft, grpo or marl.")] = "marl",
    merged: Annotated[
        bool, typer.Option("--merged", help="Also base and adapter as one model per role.")
    ] = False,
    gguf: Annotated[
        bool, typer.Option("--gguf", help="Also files for llama.cpp: the base once, a LoRA per role.")
    ] = False,
    push: Annotated[
        str | None, typer.Option("--push", help="Upload the folder to this repository of a hub: ORG/NAME.")
    ] = None,
    hub: Annotated[
        str | None, typer.Option("--hub", help="With --push, address of the hub (default huggingface.co).")
    ] = None,
    public: Annotated[
        bool, typer.Option("--public", help="With --push, make a new repository public.")
    ] = False,
) -> None:
    """Write a run's team as one folder that stands for itself: weights, prompts' version, figures, digests.

    The folder is a team everywhere: emads simulate FOLDER, --seat cto=run:FOLDER, emads serve FOLDER.
    """
    choose_stage(stage, with_base=False)
    refuse_missing_run(run)
    from emads.commands.export import export_run

    export_run(
        run,
        to,
        stage=stage,
        with_merged=merged,
        with_gguf=gguf,
        push=push,
        hub=hub,
        is_public=public,
    )


def verify(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of an exported team.")],
) -> None:
    """Check every file of an exported team against its SHA-256, and say what the team is."""
    if not (folder / "team.json").is_file():
        raise UserError(
            f"no exported team in {folder} (no team.json there); `emads export RUN --to {folder}`"
        )
    from emads.commands.export import verify_folder

    verify_folder(folder)

"""Checks of what a user gave, before anything heavy is imported; a refusal names value and remedy."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from emads.seats import STAGES
from roles.errors import UserError, unknown

if TYPE_CHECKING:
    from training.config.run_config import RunConfig
    from training.runs.run_folder import Run


def check_at_least(option: str, value: int | None, minimum: int) -> None:
    """Refuse a number under its minimum; None is no number.

    Raises:
        UserError: names option, value and minimum.
    """
    if value is not None and value < minimum:
        raise UserError(f"{option} {value} must be {minimum} or more")


def refuse_options(what: str, options: Mapping[str, object]) -> None:
    """Refuse options that were given and do not go with what is asked for.

    Raises:
        UserError: names the first one.
    """
    for option, value in options.items():
        if value:
            raise UserError(f"{option} does not go with {what}: leave it out")


def resolve_config(
    run: Path,
    config: Path | None,
    overrides: Sequence[str] | None,
    resume: bool,
    *,
    default: Path | None = None,
) -> "RunConfig":
    """Return the stored config of an existing run, or the one that --config and --set give a new run.

    A new run without --config gets the file `default`; without one it needs --config.

    Raises:
        UserError: wrong config, --resume together with --config or --set or without a run, a new run
            without --config.
    """
    from training.config.loading import load_config
    from training.runs.run_folder import Run

    stored = run / "config.yaml"
    if resume and (config is not None or overrides):
        raise UserError("--resume goes on with the run's stored config: leave out --config and --set")
    if resume or (config is None and stored.exists() and not overrides):
        return Run.open(run).config
    if config is None and stored.exists():
        return load_config(stored, overrides or ())
    if config is None and default is None:
        raise UserError(
            f"no run in {run}: make one with --config FILE, e.g. --config configs/demo.yaml,"
            " or name the folder of an existing run"
        )
    return load_config(config or default, overrides or ())


def start_run(
    run: Path,
    config: Path | None,
    overrides: Sequence[str] | None,
    resume: bool,
    *,
    default: Path | None = None,
    print_config: bool = False,
) -> "tuple[Run, RunConfig]":
    """Open or make the run of a training verb; with `print_config` print its config and end the program."""
    from training.runs.run_folder import Run

    resolved = resolve_config(run, config, overrides, resume, default=default)
    if print_config:
        from training.config.loading import render_config

        typer.echo(render_config(resolved), nl=False)
        raise typer.Exit
    if not (run / "config.yaml").exists():
        check_model_folder(resolved.model.preset)
    return Run.create(run, resolved, resume=resume), resolved


def check_model_folder(preset: str) -> None:
    """Refuse a `model.preset` that names a folder in which there is no model; a hub's id passes.

    Raises:
        UserError: names the folder and what is missing.
    """
    from training.config.model_config import PRESETS

    folder = Path(preset).expanduser()
    is_path = preset.startswith((".", "/", "~")) or preset.count("/") > 1 or folder.parent.is_dir()
    if preset in PRESETS or not is_path or (folder / "config.json").is_file():
        return
    missing = "no config.json in that folder" if folder.is_dir() else "no such folder"
    raise UserError(
        f"model.preset {preset!r}: {missing}; give a model's folder, or a hub id such as ORG/NAME"
    )


def refuse_missing_run(path: Path, *, takes_several: bool = False) -> None:
    """Refuse a folder that holds neither a run nor an exported team; `takes_several`: nor runs below it.

    Raises:
        UserError: no run there.
    """
    if any((path / name).is_file() for name in ("config.yaml", "team.json")):
        return
    below = sorted(file.parent for file in path.glob("*/config.yaml"))
    if not below:
        raise UserError(f"no run in {path} (no config.yaml there); start one with `emads demo {path}`")
    if not takes_several:
        raise UserError(f"{path} is a folder of runs: name one of them, such as {below[0]}")


def open_existing(path: Path) -> Path:
    """Return the folder of an existing run.

    Raises:
        UserError: no run there.
    """
    refuse_missing_run(path)
    from training.runs.run_folder import Run

    return Run.open(path).path


def check_page_folder(option: str, path: Path) -> None:
    """Refuse a folder of pages that is a file, or is named like one.

    Raises:
        UserError: names the option, what is there and the remedy.
    """
    if path.exists() and not path.is_dir():
        raise UserError(f"{option} {path} is a file: name a folder, in which each episode becomes a page")
    if path.suffix.lower() in (".html", ".htm", ".json") and not path.exists():
        raise UserError(f"{option} {path} must be a folder: try {option} {path.with_suffix('')}/")


def check_file_target(option: str, path: Path) -> None:
    """Refuse a file to write that is a folder, or stands in what is no folder.

    Raises:
        UserError: names option and path.
    """
    if path.is_dir():
        raise UserError(f"{option} {path} is a folder: name a file in it")
    if path.parent.exists() and not path.parent.is_dir():
        raise UserError(f"{option} {path}: {path.parent} is a file, not a folder")


def choose_stage(stage: str, *, with_base: bool = True) -> str:
    """Return the stage.

    Raises:
        UserError: unknown stage, or the base where it does not count.
    """
    stages = STAGES if with_base else STAGES[1:]
    if stage not in stages:
        raise unknown("stage", stage, list(stages))
    return stage


def choose_roles(names: Sequence[str] | None) -> tuple[str, ...]:
    """Return the named roles in registry order, all of them for none.

    Raises:
        UserError: unknown role.
    """
    from roles.registry import ROLES

    for name in names or ():
        if name not in ROLES:
            raise unknown("role", name, list(ROLES))
    return tuple(role for role in ROLES if not names or role in names)


def parse_difficulties(text: str) -> tuple[int, ...]:
    """Return the difficulties of "1,2" or "1-3".

    Raises:
        UserError: anything else, a range that runs backwards included.
    """
    difficulties: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(part) > 8:
            raise UserError(f"difficulties {text!r} are not of the form 1,2 or 1-3")
        if dash and int(last) < int(first):
            raise UserError(f"difficulties {text!r}: the range {part.strip()} is empty; write {last}-{first}")
        difficulties += range(int(first), int(last if dash else first) + 1)
    return tuple(difficulties)

"""Arguments and options that several verbs share, and checks of what a user gave.

They run before anything heavy is imported; a refusal names value and remedy.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from emads.seats import STAGES
from roles.errors import UserError, unknown

if TYPE_CHECKING:
    from emads.seats.players import ApiOptions, Seats
    from training.config.run_config import RunConfig
    from training.runs.run_folder import Run

DEFAULT_RUN = Path("runs/demo")

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")]
RunsArgument = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="RUN",
        help=f"Run folders, default {DEFAULT_RUN}; a folder of several seeds stands for all of them.",
        show_default=False,
    ),
]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="YAML config file, e.g. configs/demo.yaml; makes a new run.")
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="Override one config key: grpo.max_steps=20. Repeatable.")
]
PrintOption = Annotated[bool, typer.Option("--print-config", help="Print the resolved config and stop.")]
ResumeOption = Annotated[
    bool,
    typer.Option("--resume", help="Go on with an existing run by its stored config; no --config or --set."),
]
TakeOption = Annotated[
    Path | None,
    typer.Option(
        "--take-from",
        help="Another run: stages that it finished under equal settings are taken over, not trained again.",
    ),
]
RoleOption = Annotated[
    list[str] | None, typer.Option("--role", help="Only this role. Repeatable; default: all roles.")
]
SeatOption = Annotated[
    list[str] | None,
    typer.Option(
        "--seat",
        help="Who plays a seat: cto=openai:MODEL@URL, risk=scripted, coo=run:RUN/STAGE, cost=human, all=...",
    ),
]
ApiOption = Annotated[
    list[str] | None,
    typer.Option(
        "--api",
        help="How endpoints are asked: price=2.5,10 (a million tokens; price.MODEL=...),"
        " max_cost=5 (then exit status 8), key_env=VARIABLE (key_env.MODEL=...), replies=FILE (every paid"
        " reply is kept), requests_per_minute=60, concurrency=4, timeout_s=60, max_retries=2,"
        " temperature=1, max_completion_tokens=4096, tools=text. Repeatable.",
    ),
]
OutOption = Annotated[Path | None, typer.Option(help="With --seat: folder of plays, replies and results.")]


def read_seat_options(seat: list[str] | None, api: list[str] | None) -> "tuple[Seats, ApiOptions] | None":
    """Return players by seat and how endpoints are asked; None where no seat is named.

    Raises:
        UserError: an option of endpoints without --seat, or a value that cannot be read.
    """
    if not seat:
        if api:
            raise UserError(f"--api {api[0]} goes with --seat SEAT=openai:MODEL@URL")
        return None
    from emads.seats.players import read_api_options, read_seats

    return read_seats(seat), read_api_options(api or ())


def check_at_least(option: str, value: int | None, minimum: int) -> None:
    """Refuse a number under its minimum; None is no number.

    Raises:
        UserError: names option, value and minimum.
    """
    if value is not None and value < minimum:
        raise UserError(f"{option} {value} must be {minimum} or more")


def start_run(
    run: Path,
    config: Path | None,
    overrides: Sequence[str] | None,
    resume: bool,
    *,
    default: Path | None = None,
    print_config: bool = False,
) -> "tuple[Run, RunConfig]":
    """Open or make the run of a training verb, by its stored config or the one that --config and --set give.

    A new run without --config gets the file `default`; without one it needs --config. With `print_config` the
    config is printed and the program ends.

    Raises:
        UserError: wrong config, --resume together with --config or --set or without a run, a new run
            without --config.
    """
    from training.config.loading import load_config, render_config
    from training.runs.run_folder import Run

    stored = run / "config.yaml"
    is_stored = config is None and stored.exists()
    if resume and (config is not None or overrides):
        raise UserError("--resume goes on with the run's stored config: leave out --config and --set")
    if config is None and default is None and not resume and not is_stored:
        raise UserError(
            f"no run in {run}: make one with --config FILE, e.g. --config configs/demo.yaml,"
            " or name the folder of an existing run"
        )
    if resume or (is_stored and not overrides):
        resolved = Run.open(run).config
    else:
        resolved = load_config(stored if is_stored else config or default, overrides or ())
    if print_config:
        typer.echo(render_config(resolved), nl=False)
        raise typer.Exit
    if not stored.exists():
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
    _check_above(option, path)


def check_file_target(option: str, path: Path) -> None:
    """Refuse a file to write that is a folder, or stands in what is no folder.

    Raises:
        UserError: names option and path.
    """
    if path.is_dir():
        raise UserError(f"{option} {path} is a folder: name a file in it")
    _check_above(option, path)


def _check_above(option: str, path: Path) -> None:
    """Refuse a path below a file."""
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not above.is_dir():
        raise UserError(f"{option} {path}: {above} is a file, not a folder")


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

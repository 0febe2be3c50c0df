"""Options that several verbs share, and how they become a config and an opened run."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from roles.errors import UserError, unknown

if TYPE_CHECKING:
    from training.config import RunConfig
    from training.runs import Run

DEFAULT_RUN = Path("runs/demo")

RunOption = Annotated[Path, typer.Option("--run", help="Run folder.")]
TeamOption = Annotated[Path, typer.Option("--team", "--run", help="Run folder whose team plays.")]
ConfigOption = Annotated[Path | None, typer.Option("--config", help="YAML config file.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="Override one config key: grpo.max_steps=20. Repeatable.")
]
PrintOption = Annotated[bool, typer.Option("--print-config", help="Print the resolved config and stop.")]
ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Go on with the run in --run, with its stored config.")
]
RoleOption = Annotated[
    list[str] | None, typer.Option("--role", help="Only this role. Repeatable; default: all roles.")
]


class VerbGroup(TyperGroup):
    """Verbs with the nearest match for a mistyped one."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The verb that the arguments begin with.

        Raises:
            UserError: unknown verb.
        """
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            raise unknown("verb", args[0], list(self.commands))
        return super().resolve_command(ctx, args)


def check_at_least(option: str, value: int, minimum: int) -> None:
    """Refuse a number under its minimum.

    Raises:
        UserError: names option, value and minimum.
    """
    if value < minimum:
        raise UserError(f"{option} {value} must be {minimum} or more")


def resolve_config(
    run: Path, config: Path | None, overrides: Sequence[str] | None, resume: bool
) -> "RunConfig":
    """The stored config of an existing run unless --config or --set ask for one; --resume takes nothing else.

    Raises:
        UserError: wrong config, or --resume together with --config or --set, or without a run.
    """
    from training.config_loading import load_config
    from training.runs import Run

    is_given = config is not None or bool(overrides)
    if resume and is_given:
        raise UserError("--resume goes on with the run's stored config: leave out --config and --set")
    if resume or (not is_given and (run / "config.yaml").exists()):
        return Run.open(run).config
    return load_config(config, overrides or ())


def start_run(
    run: Path, config: Path | None, overrides: Sequence[str] | None, resume: bool, print_config: bool
) -> "Run":
    """The opened run of a training verb; with `print_config` the config is printed and the program ends."""
    from training.runs import Run

    resolved = resolve_config(run, config, overrides, resume)
    if print_config:
        show_config(resolved)
    return Run.create(run, resolved, resume=resume)


def show_config(config: "RunConfig") -> None:
    """Print the resolved config and end the program."""
    from training.config_loading import render_config

    typer.echo(render_config(config), nl=False)
    raise typer.Exit


def choose_roles(names: Sequence[str] | None) -> tuple[str, ...]:
    """The named roles in registry order, all of them for none.

    Raises:
        UserError: unknown role.
    """
    from roles.registry import ROLES

    for name in names or ():
        if name not in ROLES:
            raise unknown("role", name, list(ROLES))
    return tuple(role for role in ROLES if not names or role in names)


def parse_difficulties(text: str) -> tuple[int, ...]:
    """Difficulties as "1,2" or "1-3".

    Raises:
        UserError: anything else.
    """
    difficulties: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(part) > 8:
            raise UserError(f"difficulties {text!r} are not of the form 1,2 or 1-3")
        difficulties += range(int(first), int(last if dash else first) + 1)
    return tuple(difficulties)

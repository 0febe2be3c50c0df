"""Arguments and options that several verbs share."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roles.errors import UserError

if TYPE_CHECKING:
    from emads.seats.players import ApiOptions, Seats

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

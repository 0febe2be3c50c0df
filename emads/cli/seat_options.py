"""Options that name players by seat, and how their endpoints are asked."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from emads.seats import STOPPED
from roles.errors import UserError

if TYPE_CHECKING:
    from emads.seats.players import Seats
    from emads.seats.prices import ApiOptions

SeatOption = Annotated[
    list[str] | None,
    typer.Option(
        "--seat",
        help="Who plays a seat: cto=openai:MODEL@URL, risk=scripted, coo=run:RUN/STAGE, cost=human, all=...",
    ),
]
PriceOption = Annotated[
    list[str] | None,
    typer.Option("--price", help="Price of a million tokens: MODEL=INPUT,OUTPUT. Repeatable; never guessed."),
]
PricesOption = Annotated[
    Path | None, typer.Option("--prices", help="YAML file of prices: MODEL: {input: 2.5, output: 10}.")
]
SeatCostOption = Annotated[
    float | None,
    typer.Option("--max-cost", help="Stop before the endpoints have cost more (exit status 8)."),
]
SeatKeyOption = Annotated[
    list[str] | None,
    typer.Option("--api-key-env", help="Environment variable of the API key, or MODEL=VARIABLE. Repeatable."),
]
ApiOption = Annotated[
    list[str] | None,
    typer.Option(
        "--api",
        help="How endpoints are asked: requests_per_minute=60, concurrency=4, timeout_s=60, temperature=1,"
        " max_completion_tokens=4096, tools=text. Repeatable.",
    ),
]
RepliesOption = Annotated[
    Path | None,
    typer.Option(help="File that keeps every paid reply: the same call goes on from it at no cost."),
]

OutOption = Annotated[Path | None, typer.Option(help="With --seat: folder of plays, replies and results.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Start without a question about the cost.")]


def read_seat_options(seat: Sequence[str] | None, **options: Any) -> "tuple[Seats, ApiOptions] | None":
    """Return players by seat and how endpoints are asked; None where no seat is named.

    Raises:
        UserError: an option of endpoints without --seat, or a value that cannot be read.
    """
    if not seat:
        given = [name for name, value in options.items() if value]
        if given:
            raise UserError(f"--{given[0].replace('_', '-')} goes with --seat SEAT=openai:MODEL@URL")
        return None
    from emads.seats.players import read_seats
    from emads.seats.prices import read_api_options

    return read_seats(seat), read_api_options(**{name: value for name, value in options.items() if value})


def confirm_cost(estimate: str, is_agreed: bool) -> bool:
    """Show what play will cost and ask whether to start.

    Raises:
        UserError: nobody is there to answer.
    """
    typer.echo(estimate)
    if is_agreed or "nothing is paid" in estimate:
        return True
    if not sys.stdin.isatty():
        raise UserError("no terminal to confirm the cost on; --yes starts without a question")
    return typer.confirm("Start?")


def end_seats(stop: str | None) -> int:
    """Return the exit status of a play; say why it stopped before its end."""
    if stop is None:
        return 0
    print(f"stopped: {stop}", file=sys.stderr)
    return STOPPED

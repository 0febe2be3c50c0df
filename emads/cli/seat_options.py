"""Options that name players by seat, and how their endpoints are asked."""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from emads.seats import STOPPED
from roles.errors import UserError

if TYPE_CHECKING:
    from emads.seats.players import Seats
    from emads.seats.prices import ApiOptions
    from simulator.engines.openai.endpoint import EndpointSettings

Result = TypeVar("Result")

SEAT_OPTIONS: dict[str, Any] = {  # name -> type and help, in the order of --help
    "seat": Annotated[
        list[str] | None,
        typer.Option(
            "--seat",
            help="Who plays a seat: cto=openai:MODEL@URL, risk=scripted, coo=run:RUN/STAGE, cost=human,"
            " all=...",
        ),
    ],
    "api": Annotated[
        list[str] | None,
        typer.Option(
            "--api",
            help="How endpoints are asked: price=2.5,10 (a million tokens; price.MODEL=...), prices=FILE,"
            " max_cost=5 (then exit status 8), key_env=VARIABLE (key_env.MODEL=...), replies=FILE (every paid"
            " reply is kept), requests_per_minute=60, concurrency=4, timeout_s=60, max_retries=2,"
            " temperature=1, max_completion_tokens=4096, tools=text. Repeatable.",
        ),
    ],
}

OutOption = Annotated[Path | None, typer.Option(help="With --seat: folder of plays, replies and results.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Start without a question about the cost.")]


class SeatChoice:
    """Options of players by seat, as the user gave them."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    def read(self) -> "tuple[Seats, ApiOptions] | None":
        """Return players by seat and how endpoints are asked; None where no seat is named.

        Raises:
            UserError: an option of endpoints without --seat, or a value that cannot be read.
        """
        seat, api = self._values.get("seat"), self._values.get("api")
        if not seat:
            if api:
                raise UserError(f"--api {api[0]} goes with --seat SEAT=openai:MODEL@URL")
            return None
        from emads.seats.players import read_seats
        from emads.seats.prices import read_api_options

        return read_seats(seat), read_api_options(api or ())

    def read_endpoint(self, word: str) -> "EndpointSettings":
        """Return address, prices and limits of the one model that `word` names as `openai:MODEL@URL`.

        Raises:
            UserError: no such word, or a value that cannot be read.
        """
        from emads.seats.players import ApiPlayer, read_player
        from emads.seats.prices import read_api_options

        player = read_player(word)
        if not isinstance(player, ApiPlayer):
            raise UserError(f"{word!r} is no model behind an endpoint; write openai:MODEL@URL")
        options = read_api_options(self._values.get("api") or ())
        options.check([player])
        return options.settle(player).model_copy(update={"max_cost": options.max_cost})


def takes_seats(verb: Callable[..., Result], *, leave_out: Sequence[str] = ()) -> Callable[..., Result]:
    """Give a verb the options of players by seat after its own; they reach it as one argument, `seats`."""
    options = {name: kind for name, kind in SEAT_OPTIONS.items() if name not in leave_out}

    @wraps(verb)
    def verb_with_options(**given: Any) -> Result:
        seats = SeatChoice({name: given.pop(name) for name in options})
        return verb(**given, seats=seats)

    own = [one for one in signature(verb).parameters.values() if one.name != "seats"]
    added = [
        Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=kind)
        for name, kind in options.items()
    ]
    verb_with_options.__signature__ = Signature([*own, *added])  # type: ignore[attr-defined]
    verb_with_options.__annotations__ = {one.name: one.annotation for one in [*own, *added]}
    return verb_with_options


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

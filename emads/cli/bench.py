"""The verb `bench` and its `compare`."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from emads.cli.choices import check_at_least
from emads.cli.seat_options import (
    ApiOption,
    PriceOption,
    PricesOption,
    SeatCostOption,
    SeatKeyOption,
    SeatOption,
    YesOption,
    confirm_cost,
    end_seats,
    read_seat_options,
)
from roles.errors import UserError

EXAMPLE = "emads bench --seat all=openai:MODEL@http://127.0.0.1:8000/v1"


def bench(
    ctx: typer.Context,
    seat: SeatOption = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of plays and card (default runs/bench/PLAYERS).")
    ] = None,
    cases: Annotated[
        int | None, typer.Option(help="At most so many cases of each of the 18 cells (default: all 600).")
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Begin no case later than this.")] = None,
    yes: YesOption = False,
    price: PriceOption = None,
    prices: PricesOption = None,
    max_cost: SeatCostOption = None,
    api_key_env: SeatKeyOption = None,
    api: ApiOption = None,
) -> int:
    """Measure models on a fixed set of 600 cases, alone and at the table; writes a result card.

    The same command goes on where it stopped: what was played or paid for is kept.
    """
    if ctx.invoked_subcommand is not None:
        return 0
    chosen = read_seat_options(
        seat, price=price, prices=prices, max_cost=max_cost, api_key_env=api_key_env, api=api
    )
    if chosen is None:
        raise UserError(f"name the players: {EXAMPLE}, or --seat all=scripted")
    check_at_least("--cases", 1 if cases is None else cases, 1)
    if minutes is not None and minutes <= 0:
        raise UserError(f"--minutes {minutes:g} must be above 0")
    from emads.bench.run import name_folder, run_bench

    seats, options = chosen
    folder = out or name_folder("runs/bench", seats)
    stop = run_bench(
        seats,
        options,
        folder,
        limit=cases,
        most_seconds=None if minutes is None else 60 * minutes,
        confirm=partial(confirm_cost, is_agreed=yes),
    )
    typer.echo((folder / "card.md").read_text())
    typer.echo(f"card: {folder / 'card.json'}")
    return end_seats(stop)


def compare(
    before: Annotated[Path, typer.Argument(metavar="A", help="Folder of a bench.")],
    after: Annotated[Path, typer.Argument(metavar="B", help="Folder of another one.")],
) -> None:
    """Compare two benches, paired by case."""
    from emads.bench.card import compare_cards

    typer.echo("\n".join(compare_cards(before, after)))

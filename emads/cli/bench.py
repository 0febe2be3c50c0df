"""The verb `bench` and its `compare`."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from emads.cli.choices import check_at_least
from emads.cli.seat_options import (
    SeatChoice,
    YesOption,
    confirm_cost,
    end_seats,
    takes_seats,
)
from roles.errors import UserError

EXAMPLE = "emads bench --seat all=openai:MODEL@http://127.0.0.1:8000/v1"


@partial(takes_seats, leave_out=("replies",))
def bench(
    ctx: typer.Context,
    out: Annotated[
        Path | None, typer.Option(help="Folder of plays and card (default runs/bench/PLAYERS).")
    ] = None,
    cases: Annotated[
        int | None, typer.Option(help="At most so many cases of each of the 18 cells (default: all 600).")
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Begin no case later than this.")] = None,
    yes: YesOption = False,
    *,
    seats: SeatChoice,
) -> int:
    """Measure models on a fixed set of 600 cases, alone and at the table; writes a result card.

    The same command goes on where it stopped: what was played or paid for is kept.
    """
    if ctx.invoked_subcommand is not None:
        return 0
    chosen = seats.read()
    if chosen is None:
        raise UserError(f"name the players: {EXAMPLE}, or --seat all=scripted")
    check_at_least("--cases", 1 if cases is None else cases, 1)
    if minutes is not None and minutes <= 0:
        raise UserError(f"--minutes {minutes:g} must be above 0")
    from emads.bench.run import name_folder, run_bench

    players, options = chosen
    folder = out or name_folder("runs/bench", players)
    stop = run_bench(
        players,
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

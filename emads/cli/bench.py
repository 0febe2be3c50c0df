"""The verb `bench`."""

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


@takes_seats
def bench(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[A B]", help="Folders of two benches to compare, paired by case."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of plays and card (default runs/bench/PLAYERS).")
    ] = None,
    cases: Annotated[
        int | None, typer.Option(help="At most so many cases of each of the 18 cells (default: all 600).")
    ] = None,
    yes: YesOption = False,
    *,
    seats: SeatChoice,
) -> int:
    """Measure models on a fixed set of 600 cases, alone and at the table; writes a result card.

    The same command goes on where it stopped: what was played or paid for is kept.
    """
    chosen = seats.read()
    if folders:
        if len(folders) != 2 or chosen is not None:
            raise UserError("name two folders of benches to compare, and no --seat; or --seat alone to play")
        from emads.bench.card import compare_cards

        typer.echo("\n".join(compare_cards(*folders)))
        return 0
    if chosen is None:
        raise UserError(f"name the players: {EXAMPLE}, or --seat all=scripted")
    check_at_least("--cases", 1 if cases is None else cases, 1)
    from emads.bench.run import name_folder, run_bench

    players, options = chosen
    folder = out or name_folder("runs/bench", players)
    stop = run_bench(
        players,
        options,
        folder,
        limit=cases,
        confirm=partial(confirm_cost, is_agreed=yes),
    )
    typer.echo((folder / "card.md").read_text())
    typer.echo(f"card: {folder / 'card.json'}")
    return end_seats(stop)

"""The verb serve: a team behind OpenAI's API, MCP and A2A."""

from pathlib import Path
from typing import Annotated

import typer

from emads.cli.choices import check_at_least, choose_stage
from emads.cli.options import EngineOption
from emads.cli.seat_options import (
    SeatChoice,
    takes_seats,
)
from roles.errors import UserError


@takes_seats
def serve(
    team: Annotated[
        str | None,
        typer.Argument(
            metavar="TEAM", help="A run, an exported team's folder, or scripted.", show_default=False
        ),
    ] = None,
    stage: Annotated[
        str | None, typer.Option(help="Weights after this stage (default marl, or what was exported).")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the model at the endpoint (default: the folder's).")
    ] = None,
    port: Annotated[int, typer.Option(help="Port; 0 takes any free one.")] = 8400,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    public: Annotated[
        bool, typer.Option("--public", help="Allow an address that other machines reach; needs a token.")
    ] = False,
    token_env: Annotated[
        str | None, typer.Option(help="Environment variable of the token that every caller must show.")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Further name in requests' Host, as of a proxy. Repeatable.")
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="Address in the agent card (default http://HOST:PORT).")
    ] = None,
    db: Annotated[
        Path | None, typer.Option("--db", help="SQLite file of governed tasks: they go on after a restart.")
    ] = None,
    reviewer: Annotated[
        list[str] | None,
        typer.Option(help="Person who may rule over A2A: NAME=VARIABLE of that person's token. Repeatable."),
    ] = None,
    at_once: Annotated[int, typer.Option(help="Jobs at work at once.")] = 16,
    waiting: Annotated[int, typer.Option(help="Jobs that may wait; one more is refused with 429.")] = 256,
    grace: Annotated[float, typer.Option(help="Seconds for jobs at work when the server is ended.")] = 30.0,
    engine: EngineOption = None,
    *,
    seats: SeatChoice,
) -> None:
    """Serve a team to other programs: OpenAI-compatible chat, MCP tools, an A2A agent; /health and /metrics.

    emads serve scripted
    emads serve runs/demo --db company.db --token-env EMADS_TOKEN
    """
    if stage is not None:
        choose_stage(stage)
    check_at_least("--at-once", at_once, 1)
    check_at_least("--waiting", waiting, 0)
    chosen_seats = seats.read()
    if team is None and chosen_seats is None:
        raise UserError("give a TEAM: a run, an exported team's folder, or scripted; or players by --seat")
    try:
        from emads.commands.serve import Place, serve_team
    except ImportError as error:
        raise UserError(f"serving needs {error.name}; pip install 'emads[serve]'") from None
    serve_team(
        team,
        stage,
        Place(
            port=port,
            host=host,
            is_public=public,
            token_variable=token_env,
            names=tuple(allow_host or ()),
            url=url,
        ),
        name=name,
        db=db,
        reviewers=reviewer or (),
        most_at_once=at_once,
        most_waiting=waiting,
        grace_s=grace,
        engine=engine,
        seats=chosen_seats,
    )

"""Verbs that hand things to others: serve, review, serve-env, export, verify."""

import getpass
import re
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from emads.cli.options import (
    ApiOption,
    RunArgument,
    SeatOption,
    check_at_least,
    check_file_target,
    choose_stage,
    parse_difficulties,
    read_seat_options,
    refuse_missing_run,
)
from roles.errors import UserError, unknown


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
    port: Annotated[int, typer.Option(help="Port; 0 takes any free one.")] = 8400,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    public: Annotated[
        bool, typer.Option("--public", help="Allow an address that other machines reach; needs a token.")
    ] = False,
    token_env: Annotated[
        str | None, typer.Option(help="Environment variable of the token that every caller must show.")
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="Address by which callers come, as through a proxy; in the agent card.")
    ] = None,
    db: Annotated[
        Path | None, typer.Option("--db", help="SQLite file of governed tasks: they go on after a restart.")
    ] = None,
    reviewer: Annotated[
        list[str] | None,
        typer.Option(help="Person who may rule over A2A: NAME=VARIABLE of that person's token. Repeatable."),
    ] = None,
    seat: SeatOption = None,
    api: ApiOption = None,
) -> None:
    """Serve a team to other programs: OpenAI-compatible chat, MCP tools, an A2A agent; /health and /metrics.

    emads serve scripted
    emads serve runs/demo --db served.db --token-env EMADS_TOKEN
    """
    if stage is not None:
        choose_stage(stage)
    seats = read_seat_options(seat, api)
    if team is None and seats is None:
        raise UserError("give a TEAM: a run, an exported team's folder, or scripted; or players by --seat")
    if team is not None and team != "scripted":
        refuse_missing_run(Path(team))
    names = _find_names(url)
    try:
        from emads.commands.serve import read_token, serve_team
        from serving.guard import settle_access
    except ImportError as error:
        raise UserError(f"serving needs {error.name}; pip install 'emads[serve]'") from None
    token = None if token_env is None else read_token(token_env)
    access = settle_access(port=port, host=host, token=token, is_public=public, names=names)
    serve_team(team, stage, seats=seats, access=access, url=url, db=db, reviewers=reviewer or ())


def review(
    where: Annotated[
        Path, typer.Argument(metavar="RUN|STORE", help="Run folder, or the SQLite file that --db names.")
    ],
    reviewer: Annotated[
        list[str] | None,
        typer.Option(
            "--reviewer", help="Who may sign in, each by a link of their own (default: you). Repeatable."
        ),
    ] = None,
    labels_per_answer: Annotated[
        int, typer.Option(help="Reviewers who judge each answer, apart from one another.")
    ] = 1,
    four_eyes: Annotated[
        bool, typer.Option("--four-eyes", help="A plan needs the approvals of two reviewers.")
    ] = False,
    port: Annotated[int, typer.Option(help="Port; 0 takes any free one.")] = 8800,
    host: Annotated[
        str, typer.Option(help="Address to listen on; beyond this machine only with --public.")
    ] = "127.0.0.1",
    public: Annotated[bool, typer.Option("--public", help="Other machines may reach the app.")] = False,
    url: Annotated[
        str | None,
        typer.Option(
            help="Address by which browsers come, as through a proxy; with https cookies are sent so alone."
        ),
    ] = None,
    remove: Annotated[
        str | None,
        typer.Option("--remove", help="Take this reviewer's registration back, and end; nothing is served."),
    ] = None,
) -> None:
    """Open the review app: people approve plans, compare and correct answers in the browser.

    emads simulate --team scripted --protocol full --reviewer web --db company.db   (waits for rulings)
    emads review company.db                                                         (in another terminal)
    """
    check_at_least("--labels-per-answer", labels_per_answer, 1)
    names = _find_names(url)
    try:
        from serving.guard import settle_access
        from serving.review.app import find_store, remove_reviewer, serve_review
        from serving.review.room import ReviewSettings
    except ModuleNotFoundError as error:
        if error.name not in ("fastapi", "uvicorn", "starlette"):
            raise
        raise UserError("reviewing needs FastAPI and uvicorn; pip install 'emads[http]'") from None
    store, queue = find_store(where)
    if remove is not None:
        remove_reviewer(store, remove)
        print(f"{remove} rules on nothing of {store} any more")
        return
    access = settle_access(port=port, host=host, is_public=public, names=names, has_own_tokens=True)
    settings = ReviewSettings(
        store=store,
        queue=queue,
        # by default the user of this machine, in letters that reviewers' names have
        reviewers=tuple(
            dict.fromkeys(reviewer or [re.sub(r"[^A-Za-z0-9]+", "-", getpass.getuser()).strip("-")])
        ),
        labels_per_item=labels_per_answer,
        four_eyes=four_eyes,
        is_secure=(url or "").startswith("https://"),
    )
    serve_review(settings, access)


def serve_env(
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1.")] = 8700,
    rows: Annotated[Path | None, typer.Option(help="First write scenarios as rows into this file.")] = None,
    name: Annotated[str, typer.Option("--family", help="Family of the rows.")] = "cto",
    count: Annotated[int, typer.Option(help="Number of rows.")] = 100,
    difficulties: Annotated[str, typer.Option(help="Difficulties of the rows, as 1,2 or 1-3.")] = "1-3",
    tasks: Annotated[list[Path] | None, typer.Option(help="Folder of imported tasks to serve, too.")] = None,
    standard: Annotated[str, typer.Option(help="nemo-gym or openenv.")] = "nemo-gym",
) -> None:
    """Serve role families, seats of the team and tasks over HTTP, for other trainers."""
    from serving.environments.plays import open_kinds, write_rows

    if standard not in ("nemo-gym", "openenv"):
        raise unknown("standard", standard, ["nemo-gym", "openenv"])
    kinds = open_kinds(*(tasks or ()))
    if name not in kinds:
        raise unknown("family", name, list(kinds))
    check_at_least("--count", count, 1)
    levels = parse_difficulties(difficulties)
    if rows is not None:
        check_file_target("--rows", rows)
        write_rows(rows, name, count=count, difficulties=levels, kinds=kinds)
        typer.echo(f"rows: {rows}")
    try:
        from serving.guard import run_server, settle_access

        if standard == "openenv":
            from serving.environments.openenv_env import make_app

            app, shown, limits = make_app(kinds, name), "OpenEnv environment", None
        else:
            from serving.environments import http_env

            app, shown = http_env.make_app(kinds), f"environments {', '.join(kinds)}"
            limits = http_env.LIMITS
    except ImportError:
        if standard == "openenv":
            raise UserError("needs the package openenv; see docs/how-to/use-other-trainers.md") from None
        raise UserError("serving needs FastAPI and uvicorn; pip install 'emads[http]'") from None
    is_openenv = standard == "openenv"  # whose clients play over WebSockets
    run_server(app, settle_access(port=port), name=shown, limits=limits, has_websockets=is_openenv)


def _find_names(url: str | None) -> tuple[str, ...]:
    """Return the name that requests' Host carries at this address; none for no address.

    Raises:
        UserError: no address such as https://team.example.com.
    """
    if url is None:
        return ()
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UserError(f"--url {url} is no address; write https://team.example.com")
    return (parts.hostname,)


def export(
    run: RunArgument,
    to: Annotated[Path, typer.Option("--to", help="New folder for the team.", show_default=False)],
    stage: Annotated[str, typer.Option(help="Weights after this stage: sft, grpo or marl.")] = "marl",
    merged: Annotated[
        bool, typer.Option("--merged", help="Also base and adapter as one model per role.")
    ] = False,
    gguf: Annotated[
        bool, typer.Option("--gguf", help="Also files for llama.cpp: the base once, a LoRA per role.")
    ] = False,
) -> None:
    """Write a run's team as one folder that stands for itself: weights, prompts' version, figures, digests.

    The folder is a team everywhere: emads simulate FOLDER, --seat cto=run:FOLDER, emads serve FOLDER.
    """
    choose_stage(stage, with_base=False)
    refuse_missing_run(run)
    from emads.commands.export import export_run

    lines = export_run(run, to, stage=stage, with_merged=merged, with_gguf=gguf)
    typer.echo("\n".join(lines))


def verify(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of an exported team.")],
) -> None:
    """Check every file of an exported team against its SHA-256, and say what the team is."""
    if not (folder / "team.json").is_file():
        raise UserError(
            f"no exported team in {folder} (no team.json there); `emads export RUN --to {folder}`"
        )
    from emads.commands.export import verify_folder

    typer.echo("\n".join(verify_folder(folder)))

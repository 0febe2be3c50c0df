"""Verbs that play: simulate and serve-env."""

from pathlib import Path
from typing import Annotated, Any

import typer

from emads.cli.choices import (
    check_at_least,
    choose_players,
    choose_stage,
    is_governed,
    parse_difficulties,
    read_agents,
)
from emads.cli.options import (
    AgentOption,
    CompanyOption,
    EngineOption,
    LimitOption,
    ProtocolOption,
    QuestionsOption,
    ReviewerOption,
    StoreOption,
    TeamOption,
    WorldOption,
)
from emads.cli.seat_options import (
    SeatChoice,
    takes_seats,
)
from roles.errors import UserError, unknown


@takes_seats
def simulate(
    players: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RUN|CASE",
            help="The run whose team plays, and case files (.yaml, .md); without files: test scenarios.",
            show_default=False,
        ),
    ] = None,
    team: TeamOption = None,
    index: Annotated[int | None, typer.Option(help="First test scenario, from 0 (default 0).")] = None,
    count: Annotated[int | None, typer.Option(help="Number of test scenarios (default 1).")] = None,
    stage: Annotated[
        str | None,
        typer.Option(
            help="Weights after this stage: base, sft, grpo or marl (default marl, or what was exported)."
        ),
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Folder for minutes, one HTML page per episode.")] = None,
    jsonl: Annotated[Path | None, typer.Option(help="File for the episodes, one per line.")] = None,
    atif: Annotated[
        Path | None, typer.Option(help="Folder for one ATIF document (agent trajectory, JSON) per episode.")
    ] = None,
    spans: Annotated[
        Path | None, typer.Option(help="File for OpenTelemetry spans (pip install 'emads[otel]').")
    ] = None,
    live: Annotated[bool, typer.Option("--live", help="Show events while they happen.")] = False,
    engine: EngineOption = None,
    protocol: ProtocolOption = "assess",
    reviewer: ReviewerOption = None,
    db: StoreOption = None,
    world: WorldOption = None,
    company: CompanyOption = None,
    agent: AgentOption = None,
    limit: LimitOption = None,
    questions: QuestionsOption = None,
    *,
    seats: SeatChoice,
) -> int:
    """Play case files or test scenarios with a team and show who said what.

    Without a run: emads simulate examples/card-payments.yaml --team scripted --html out/
    With a model:  emads simulate --seat all=scripted --seat cto=openai:MODEL@http://127.0.0.1:8000/v1
    """
    if stage is not None:
        choose_stage(stage)
    check_at_least("--index", index or 0, 0)
    check_at_least("--count", 1 if count is None else count, 1)
    check_at_least("--world", world or 0, 0)
    check_at_least("--questions", questions or 0, 0)
    chosen_seats = seats.read()
    source, cases = choose_players(players or (), team, stage, engine, has_seats=chosen_seats is not None)
    if cases and (index is not None or count is not None):
        raise UserError("--index and --count choose test scenarios: leave them out when case files are given")
    if cases and company is not None:
        raise UserError("--company chooses test scenarios: leave it out when case files are given")
    is_full = is_governed(protocol, reviewer=reviewer, db=db, world=world, company=company)
    if is_full and engine is not None:
        raise UserError("--engine goes with --protocol assess; the full one plays on the embedded engine")
    rules = read_agents(agent or (), limit or ())
    from emads.commands.simulation.simulate_outputs import Outputs

    outputs = Outputs(html=html, episodes=jsonl, atif=atif, spans=spans, live=live)
    chosen: dict[str, Any] = {"cases": cases, "index": index or 0, "count": count or 1, **rules}
    chosen["questions"] = questions
    if chosen_seats is not None:
        chosen |= {"seats": chosen_seats[0], "api": chosen_seats[1]}
    if is_full:
        from emads.commands.simulation.simulate_full import simulate_full

        return simulate_full(
            source,
            stage,
            reviewer=reviewer,
            db=db,
            world=world or 0,
            company=company,
            outputs=outputs,
            **chosen,
        )
    from emads.commands.simulation.simulate import simulate as play

    return play(source, stage, outputs=outputs, engine_name=engine, **chosen)


def serve_env(
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1.")] = 8700,
    rows: Annotated[Path | None, typer.Option(help="First write scenarios as rows into this file.")] = None,
    name: Annotated[str, typer.Option("--family", help="Family of the rows.")] = "cto",
    count: Annotated[int, typer.Option(help="Number of rows.")] = 100,
    seed: Annotated[int, typer.Option(help="Seed of the rows' scenarios.")] = 0,
    difficulties: Annotated[str, typer.Option(help="Difficulties of the rows, as 1,2 or 1-3.")] = "1-3",
    tasks: Annotated[list[Path] | None, typer.Option(help="Folder of imported tasks to serve, too.")] = None,
    standard: Annotated[str, typer.Option(help="nemo-gym or openenv.")] = "nemo-gym",
) -> None:
    """Serve role families, seats of the team and tasks over HTTP, for other trainers."""
    from serving.environments.plays import open_kinds

    if standard not in ("nemo-gym", "openenv"):
        raise unknown("standard", standard, ["nemo-gym", "openenv"])
    kinds = open_kinds(*(tasks or ()))
    if name not in kinds:
        raise unknown("family", name, list(kinds))
    check_at_least("--count", count, 1)
    check_at_least("--seed", seed, 0)
    levels = parse_difficulties(difficulties)
    if rows is not None:
        from serving.environments.http_rows import write_rows

        write_rows(rows, name, split="train", seed=seed, count=count, difficulties=levels, kinds=kinds)
        typer.echo(f"rows: {rows}")
    if standard == "openenv":
        try:
            from serving.environments import openenv_env
        except ImportError:
            raise UserError("needs the package openenv; see docs/how-to/use-other-trainers.md") from None
        openenv_env.serve(port, kinds, name)
        return
    try:
        from serving.environments.http_env import serve
    except ImportError:
        raise UserError("serving needs FastAPI and uvicorn; pip install 'emads[http]'") from None
    serve(port, kinds)

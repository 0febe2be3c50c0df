"""The verb simulate."""

from pathlib import Path
from typing import Annotated, Any

import typer

from emads.cli.choices import (
    check_at_least,
    choose_players,
    choose_stage,
    is_governed,
    read_agents,
)
from emads.cli.options import (
    AgentOption,
    CompanyOption,
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
from emads.commands.new_runs import check_file_target, check_page_folder
from roles.errors import UserError


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
    source, cases = choose_players(players or (), team, stage, has_seats=chosen_seats is not None)
    if cases and (index is not None or count is not None):
        raise UserError("--index and --count choose test scenarios: leave them out when case files are given")
    if cases and company is not None:
        raise UserError("--company chooses test scenarios: leave it out when case files are given")
    is_full = is_governed(protocol, reviewer=reviewer, db=db, world=world, company=company)
    rules = read_agents(agent or (), limit or ())
    for option, folder in (("--html", html), ("--atif", atif)):
        if folder is not None:
            check_page_folder(option, folder)
    for option, file in (("--jsonl", jsonl), ("--spans", spans)):
        if file is not None:
            check_file_target(option, file)
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

    return play(source, stage, outputs=outputs, **chosen)

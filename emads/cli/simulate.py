"""The verb `simulate`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from emads.cli.options import (
    ApiOption,
    SeatOption,
    check_at_least,
    check_file_target,
    check_page_folder,
    choose_stage,
    read_seat_options,
    refuse_missing_run,
)
from emads.seats import SCRIPTED
from roles.errors import UserError, unknown

CASE_SUFFIXES = (".yaml", ".yml", ".md")
FIRST_SIMULATION = "emads simulate examples/card-payments.yaml --team scripted --html out/"


def simulate(
    players: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RUN|CASE",
            help="The run or exported team that plays, and case files (.yaml, .md); without files: test"
            " scenarios.",
            show_default=False,
        ),
    ] = None,
    team: Annotated[
        str | None,
        typer.Option("--team", help="In place of a RUN. scripted: experts in code, in every protocol."),
    ] = None,
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
    live: Annotated[bool, typer.Option("--live", help="Show events while they happen.")] = False,
    protocol: Annotated[
        str,
        typer.Option(help="assess: reports, decision, votes. full: also approval, execution, re-plans."),
    ] = "assess",
    reviewer: Annotated[
        str | None,
        typer.Option(
            help="With --protocol full, who approves plans: simulated, terminal (you), or web (emads review)."
        ),
    ] = None,
    db: Annotated[
        Path | None,
        typer.Option(
            "--db", help="With --protocol full, SQLite file: the same call goes on where it stopped."
        ),
    ] = None,
    world: Annotated[
        int | None,
        typer.Option(help="With --protocol full, seed of the shocks that plans meet (default 0)."),
    ] = None,
    company: Annotated[
        str | None,
        typer.Option(
            help="With --protocol full, play this company's cases in turn: its upgrades have lasting hidden "
            "traits, and later briefs tell what earlier cases showed."
        ),
    ] = None,
    agent: Annotated[
        list[str] | None,
        typer.Option(help="Agent kind, chat, react or code: cto=code for one role. Repeatable."),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            help="Limit of every agent: turns=4; or turn_tokens, total_tokens, tool_calls, failed_calls."
        ),
    ] = None,
    questions: Annotated[
        int | None,
        typer.Option(
            help="Most questions of ReconcileGPT per case (default: as trained; full prompts 1; scripted 0)."
        ),
    ] = None,
    seat: SeatOption = None,
    api: ApiOption = None,
) -> int:
    """Play case files or test scenarios with a team and show who said what.

    Without a run: emads simulate examples/card-payments.yaml --team scripted --html out/
    With a model:  emads simulate --seat all=scripted --seat cto=openai:MODEL@http://127.0.0.1:8000/v1
    """
    if stage is not None:
        choose_stage(stage)
    check_at_least("--index", index, 0)
    check_at_least("--count", count, 1)
    check_at_least("--world", world, 0)
    check_at_least("--questions", questions, 0)
    seats, endpoints = read_seat_options(seat, api) or (None, None)
    source, cases = _choose_players(players or (), team, stage, has_seats=seats is not None)
    if cases and (index is not None or count is not None):
        raise UserError("--index and --count choose test scenarios: leave them out when case files are given")
    if cases and company is not None:
        raise UserError("--company chooses test scenarios: leave it out when case files are given")
    if protocol not in ("assess", "full"):
        raise unknown("protocol", protocol, ["assess", "full"])
    governed = {"--reviewer": reviewer, "--db": db, "--world": world, "--company": company}
    given = [option for option, value in governed.items() if value is not None]
    if given and protocol != "full":
        raise UserError(f"{given[0]} goes with --protocol full")
    for option, folder in (("--html", html), ("--atif", atif)):
        if folder is not None:
            check_page_folder(option, folder)
    if jsonl is not None:
        check_file_target("--jsonl", jsonl)
    from roles.registry import ROLES
    from simulator.agents.agent_kinds import read_kinds, read_limits

    kinds, limits = read_kinds(agent or (), ROLES), read_limits(limit or ())
    from emads.commands import simulate as commands

    chosen = commands.Chosen(
        source=source,
        stage=stage,
        seats=seats,
        api=endpoints,
        questions=questions,
        cases=cases,
        index=index or 0,
        count=count or 1,
        kinds=kinds,
        limits=limits,
    )
    outputs = commands.Outputs(html=html, episodes=jsonl, atif=atif, live=live)
    if protocol == "assess":
        return commands.simulate(chosen, outputs)
    return commands.simulate_full(
        chosen, outputs, reviewer=reviewer, db=db, world=world or 0, company=company
    )


def _choose_players(
    names: Sequence[Path], team: str | None, stage: str | None, *, has_seats: bool
) -> tuple[Path | str | None, list[Path]]:
    """Return who plays, a folder, "scripted" or None (those that --seat names), and the case files.

    Raises:
        UserError: nobody to play, no such case file, two runs, a run beside --team, no such team, or a stage
            of no run.
    """
    cases = [name for name in names if name.suffix in CASE_SUFFIXES or name.is_file()]
    if cases and not any(case.exists() for case in cases):
        raise UserError(f"no case file {cases[0]}; see examples/ for some")
    runs = [name for name in names if name not in cases]
    if len(runs) > 1:
        suffixes = ", ".join(CASE_SUFFIXES)
        raise UserError(f"two runs, {runs[0]} and {runs[1]}: name one (case files end in {suffixes})")
    if team is None and runs:
        refuse_missing_run(runs[0])
        return runs[0], cases
    if team is None:
        if not has_seats:
            raise UserError(f"give a RUN whose team plays, or play without one: `{FIRST_SIMULATION}`")
        return None, cases
    if runs:
        raise UserError(f"give the run {runs[0]} or --team {team}, not both")
    if team != SCRIPTED:
        raise UserError(
            f"unknown team {team!r} (known: {SCRIPTED}); a run is an argument: `emads simulate {team}`"
        )
    if stage is not None:
        raise UserError(f"--stage goes with a RUN, not with --team {team}")
    return team, cases

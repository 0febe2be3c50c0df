"""Verbs that measure: evaluate, play, diagnose, ablate, report, bench, audit, judge."""

from pathlib import Path
from typing import Annotated

import typer

from emads.cli.options import (
    DEFAULT_RUN,
    ApiOption,
    OutOption,
    RoleOption,
    RunArgument,
    RunsArgument,
    SeatOption,
    check_at_least,
    choose_roles,
    choose_stage,
    open_existing,
    read_seat_options,
    refuse_missing_run,
)
from emads.seats import STOPPED
from roles.errors import UserError, unknown

MAX_TEMPERATURE = 2.0
SECTOR_SUITE = "new-sectors"  # the sealed split test-new-sectors, played by every role
SUITES = ("reasoning-gym", SECTOR_SUITE)  # answered by single roles
TABLE_SUITES = ("hidden-profile", "negotiation")  # played by the whole table


def evaluate(
    runs: RunsArgument = None,
    again: Annotated[bool, typer.Option("--again", help="Play everything anew.")] = False,
    gate: Annotated[
        Path | None, typer.Option(help="YAML file of thresholds; a missed one gives exit status 3.")
    ] = None,
    tasks: Annotated[
        Path | None, typer.Option(help="Folder of question files: these are answered instead.")
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option(
            help="Check that is played instead: reasoning-gym, new-sectors (sealed cases in sectors and a"
            " wording of their own, beside the test split), or by the whole table negotiation, hidden-profile"
            " (with --tasks: HiddenBench's benchmark.json)."
        ),
    ] = None,
    named_stage: Annotated[
        str | None,
        typer.Option("--stage", help="With --tasks, --suite or --seat: weights after this stage."),
    ] = None,
    who: Annotated[
        str | None,
        typer.Option("--role", help="With --tasks or --suite: whose weights answer (default cto)."),
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(
            help="With --seat or an exported team: sealed cases; with --suite: questions (default 100)."
        ),
    ] = None,
    out: OutOption = None,
    seat: SeatOption = None,
    api: ApiOption = None,
) -> int:
    """Score every finished stage of a run on the sealed test split; several runs are compared as seeds.

    With --seat the run's team plays with other players in these seats, and is compared with itself.
    """
    chosen = read_seat_options(seat, api)
    if suite is not None and suite not in (*SUITES, *TABLE_SUITES):
        raise unknown("--suite", suite, [*SUITES, *TABLE_SUITES])
    paths = runs or ([] if chosen else [DEFAULT_RUN])
    for path in paths:
        refuse_missing_run(path, takes_several=True)
    stage, number = choose_stage(named_stage or "marl"), 100 if count is None else count
    check_at_least("--count", number, 1)
    (role,) = choose_roles([who or "cto"])
    home = paths[0] if paths else None
    at_table = suite in TABLE_SUITES
    answers = not at_table and chosen is None and (tasks is not None or suite is not None)
    is_team = len(paths) == 1 and (paths[0] / "team.json").is_file()
    plays_seats = not at_table and not answers and (chosen is not None or is_team)
    if at_table:
        kind, allowed = "a table suite", {"--suite", "--stage", "--count", "--out"}
        allowed |= {"--tasks"} if suite == "hidden-profile" else set()
    elif answers:
        kind, allowed = "--tasks or --suite", {"--suite", "--stage", "--count", "--role"}
        allowed |= set() if suite else {"--tasks"}
    elif plays_seats:
        kind, allowed = "--seat" if chosen else "an exported team", {"--stage", "--count", "--out"}
    else:
        kind = "a whole run, whose config names cases and stages"
        allowed = {"--again", "--gate", "a second RUN"}
    given: dict[str, object] = {
        "--again": again,
        "--gate": gate,
        "a second RUN": len(paths) > 1,
        "--tasks": tasks,
    }
    given |= {"--suite": suite, "--stage": named_stage, "--role": who, "--count": count, "--out": out}
    for option, value in given.items():
        if value and option not in allowed:
            raise UserError(f"{option} does not go with {kind}: leave it out")
    if at_table:
        from emads.commands.suites import evaluate_table_suite
        from emads.seats.players import ApiOptions, RunPlayer, Seats
        from training.export.team_folder import find_stage

        players, endpoints = chosen or (Seats({}), ApiOptions())
        if home is not None:
            players = players.or_else(RunPlayer(home, find_stage(home, stage)))
        return end_seats(
            evaluate_table_suite(str(suite), players, endpoints, file=tasks, count=number, out=out)
        )
    if plays_seats:
        from emads.commands.play_seats import evaluate_seats
        from emads.seats.players import ApiOptions, read_seats

        players, endpoints = chosen or (read_seats([f"all=run:{home}"]), ApiOptions())
        source = home if chosen else None
        return end_seats(evaluate_seats(source, stage, players, endpoints, count=number, out=out))
    if suite == SECTOR_SUITE:
        from emads.commands.evaluate import compare_new_sectors
        from evaluation.summary.tables import print_tables

        chosen_roles = choose_roles(None if who is None else [who])
        print_tables([compare_new_sectors(paths[0], stage, number, chosen_roles)])
        return 0
    if answers:
        from emads.commands.suites import evaluate_tasks

        evaluate_tasks(paths[0], folder=tasks, suite=suite or "", count=number, stage=stage, role=role)
        return 0
    from emads.commands.evaluate import evaluate_runs

    return evaluate_runs(paths, again=again, gate=gate)


def end_seats(stop: str | None) -> int:
    """Return the exit status of a play; say why it stopped before its end."""
    if stop is None:
        return 0
    typer.echo(f"stopped: {stop}", err=True)
    return STOPPED


def play(
    run: RunArgument,
    who: RoleOption = None,
    stages: Annotated[
        list[str] | None,
        typer.Option("--stage", help="Weights after this stage; default: every finished one. Repeatable."),
    ] = None,
    count: Annotated[int, typer.Option(help="Scenarios of each role.")] = 32,
    temperature: Annotated[float, typer.Option(help="0 plays greedily.")] = 1.0,
    show: Annotated[int, typer.Option(help="Plays of each role that are shown in words.")] = 0,
) -> None:
    """Play roles alone on validation scenarios and show what they say; nothing sealed is spent."""
    names = [choose_stage(stage) for stage in stages or ()]
    check_at_least("--count", count, 1)
    check_at_least("--show", show, 0)
    if not 0 <= temperature <= MAX_TEMPERATURE:
        raise UserError(f"--temperature {temperature:g} must be between 0 and {MAX_TEMPERATURE:g}")
    roles, path = choose_roles(who), open_existing(run)
    from emads.commands.play_roles import play_roles

    play_roles(path, roles, names, count=count, temperature=temperature, num_shown=show)


def diagnose(
    run: Annotated[
        Path | None,
        typer.Argument(metavar="RUN", help=f"Run folder, default {DEFAULT_RUN}.", show_default=False),
    ] = None,
    stage: Annotated[str, typer.Option(help="The team after this stage: sft, grpo or marl.")] = "marl",
    count: Annotated[int, typer.Option(help="Sealed cases.")] = 200,
    out: OutOption = None,
    seat: SeatOption = None,
    api: ApiOption = None,
) -> int:
    """Find roles that add nothing, are ignored or always agree; swap roles between stages.

    With --seat the players of these seats are probed, and each is replaced by an adversary and by an expert.
    """
    choose_stage(stage, with_base=False)
    check_at_least("--count", count, 20)
    chosen = read_seat_options(seat, api)
    home = None if run is None and chosen else open_existing(run or DEFAULT_RUN)
    from emads.commands.play_seats import diagnose_run, diagnose_seats

    if chosen is not None:
        return end_seats(diagnose_seats(home, stage, *chosen, count=count, out=out))
    assert home is not None
    diagnose_run(home, stage=stage, count=count)
    return 0


def ablate(
    plan: Annotated[
        Path, typer.Option("--config", help="YAML file of the ablation, as in configs/ablations.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of ablations, which share equal stages.")] = Path(
        "runs/ablations"
    ),
    workers: Annotated[int, typer.Option(help="Worker processes; 0 runs in this one.")] = 2,
) -> None:
    """Train and score every combination of a grid of config keys; what is done is kept."""
    check_at_least("--workers", workers, 0)
    from emads.commands.ablate import ablate as run_ablation

    run_ablation(plan, out, workers=workers)


def report(
    runs: RunsArgument = None,
    markdown: Annotated[
        Path | None, typer.Option(help="Also write one Markdown page of all runs: runs/results.md.")
    ] = None,
) -> None:
    """Write the report of each run as one self-contained HTML file."""
    paths = runs or [DEFAULT_RUN]
    for path in paths:
        refuse_missing_run(path, takes_several=True)
    from emads.commands.evaluate import report_runs

    for page in report_runs(paths, markdown=markdown):
        typer.echo(page)


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
    seat: SeatOption = None,
    api: ApiOption = None,
) -> int:
    """Measure models on a fixed set of 600 cases, alone and at the table; writes a result card.

    The same command goes on where it stopped: what was played or paid for is kept. What models cost at most
    says --api max_cost.
    """
    chosen = read_seat_options(seat, api)
    if folders:
        if len(folders) != 2 or chosen is not None:
            raise UserError("name two folders of benches to compare, and no --seat; or --seat alone to play")
        from emads.bench.card import compare_cards

        typer.echo("\n".join(compare_cards(*folders)))
        return 0
    if chosen is None:
        raise UserError(
            "name the players: emads bench --seat all=openai:MODEL@http://127.0.0.1:8000/v1,"
            " or --seat all=scripted"
        )
    check_at_least("--cases", cases, 1)
    from emads.bench.run import run_bench

    folder, stop = run_bench(*chosen, out, limit=cases)
    typer.echo((folder / "card.md").read_text())
    typer.echo(f"card: {folder / 'card.json'}")
    return end_seats(stop)


def audit(
    tier: Annotated[str, typer.Option(help="pr (under a minute) or full (minutes, on all cores).")] = "pr",
    family: Annotated[
        list[str] | None, typer.Option(help="Only this family. Repeatable; default: all.")
    ] = None,
    probe: Annotated[
        list[str] | None, typer.Option(help="Only this probe (V1-V6, V9, V10). Repeatable; default: all.")
    ] = None,
) -> None:
    """Attack every verifier and show each breach that was found."""
    from evaluation.audit.run_probes import show_audit

    broken = show_audit(tier, family or (), 0, typer.echo, probes=probe or ())
    if broken:
        raise UserError(f"{len(broken)} breaches are listed, the first: {broken[0]}")


def judge(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The judge: openai:MODEL@URL.")],
    answers: Annotated[
        Path | None,
        typer.Option(help="Folder of JSON or JSON Lines files of question and answer: these are scored."),
    ] = None,
    criterion: Annotated[
        list[str] | None,
        typer.Option(help="What is scored, as NAME=QUESTION. Repeatable; default: sound working."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File of scores, one JSON line for each answer.")] = None,
    api: ApiOption = None,
) -> None:
    """Test whether a language model is fit to judge answers; a fit one may then score a folder of them."""
    if answers is None and (criterion or out):
        raise UserError(f"--{'criterion' if criterion else 'out'} goes with --answers FOLDER")
    pairs = [one.partition("=") for one in criterion or ()]
    for name, _, question in pairs:
        if not name.isidentifier() or not question.strip():
            raise UserError(
                f"--criterion {name!r} is not of the form NAME=QUESTION: clear='is it easy to follow?'"
            )
    from emads.seats.players import ApiPlayer, read_api_options, read_player

    player = read_player(model)
    if not isinstance(player, ApiPlayer):
        raise UserError(f"{model!r} is no model behind an endpoint; write openai:MODEL@URL")
    options = read_api_options(api or ())
    options.check([player])
    from emads.commands.judge import judge_answers

    judge_answers(
        options.settle(player).model_copy(update={"max_cost": options.max_cost}),
        answers=answers,
        criteria={name: question for name, _, question in pairs},
        out=out,
    )

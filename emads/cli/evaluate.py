"""Verbs that measure: evaluate, play, diagnose, ablate, report, audit, judge."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from emads.cli.choices import check_at_least, choose_roles, choose_stage, open_existing
from emads.cli.options import DEFAULT_RUN, RoleOption, RunArgument, RunsArgument
from emads.cli.seat_options import (
    OutOption,
    SeatChoice,
    YesOption,
    confirm_cost,
    end_seats,
    takes_seats,
)
from emads.commands.new_runs import refuse_missing_run
from roles.errors import UserError, unknown

if TYPE_CHECKING:
    from emads.seats.players import Seats
    from emads.seats.prices import ApiOptions

MAX_TEMPERATURE = 2.0
SUITES = ("reasoning-gym",)  # answered by one role
TABLE_SUITES = ("hidden-profile", "negotiation")  # played by the whole table


@takes_seats
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
            help="Outside check that is played instead: reasoning-gym, or by the whole table hidden-profile,"
            " negotiation."
        ),
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="With --suite hidden-profile: HiddenBench's benchmark.json.")
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
    yes: YesOption = False,
    *,
    seats: SeatChoice,
) -> int:
    """Score every finished stage of a run on the sealed test split; several runs are compared as seeds.

    With --seat the run's team plays with other players in these seats, and is compared with itself.
    """
    chosen = seats.read()
    if suite is not None and suite not in (*SUITES, *TABLE_SUITES):
        raise unknown("--suite", suite, [*SUITES, *TABLE_SUITES])
    paths = runs or ([] if chosen else [DEFAULT_RUN])
    for path in paths:
        refuse_missing_run(path)
    stage, number = choose_stage(named_stage or "marl"), 100 if count is None else count
    check_at_least("--count", number, 1)
    (role,) = choose_roles([who or "cto"])
    at_table = suite in TABLE_SUITES
    is_team = len(paths) == 1 and (paths[0] / "team.json").is_file() and tasks is None and suite is None
    plays_other = at_table or chosen is not None or is_team
    answers = not at_table and (tasks is not None or suite is not None)
    what = "a table suite" if at_table else "--seat" if chosen else "an exported team"
    if plays_other or answers:
        _refuse(
            what if plays_other else "--tasks or --suite",
            {"--again": again, "--gate": gate, "a second RUN": len(paths) > 1},
        )
    if plays_other:
        _refuse(
            what, {"--role": who, "--tasks": tasks, "--suite": suite if chosen and not at_table else None}
        )
    else:
        _refuse("a whole run" if not answers else "tasks", {"--out": out, "--yes": yes})
    if answers:
        _refuse("--suite", {"--tasks": tasks and suite})
    elif not plays_other:
        _refuse(
            "a whole run, whose config names cases and stages",
            {"--count": count, "--stage": named_stage, "--role": who},
        )
    if suite != "hidden-profile":
        _refuse("anything but --suite hidden-profile", {"--file": file})
    home = paths[0] if paths else None
    confirm = partial(confirm_cost, is_agreed=yes)
    if suite is not None and at_table:
        return end_seats(_play_suite(suite, home, stage, chosen, file, number, out, confirm))
    if chosen is not None or is_team:
        from emads.commands.evaluation.play_seats import evaluate_seats
        from emads.seats.players import read_seats
        from emads.seats.prices import ApiOptions

        players, api = chosen or (read_seats([f"all=run:{home}"]), ApiOptions())
        source = None if is_team and chosen is None else home
        return end_seats(evaluate_seats(source, stage, players, api, count=number, out=out, confirm=confirm))
    if answers:
        from emads.commands.evaluation.evaluate_tasks import evaluate_folder, evaluate_suite

        if tasks is not None:
            evaluate_folder(paths[0], tasks, stage=stage, role=role)
        elif suite is not None:
            evaluate_suite(paths[0], suite, number, stage=stage, role=role)
        return 0
    from emads.commands.evaluation.evaluate import evaluate_runs

    return evaluate_runs(paths, again=again, gate=gate)


def _refuse(what: str, options: Mapping[str, object]) -> None:
    """Refuse options that do not go with what is asked for.

    Raises:
        UserError: names the first one.
    """
    for option, value in options.items():
        if value:
            raise UserError(f"{option} does not go with {what}: leave it out")


def _play_suite(
    suite: str,
    run: Path | None,
    stage: str,
    chosen: "tuple[Seats, ApiOptions] | None",
    file: Path | None,
    count: int,
    out: Path | None,
    confirm: Callable[[str], bool],
) -> str | None:
    """Play a table suite; whoever is not named by --seat is played by the run."""
    from emads.commands.evaluation.evaluate_table_suite import evaluate_table_suite
    from emads.seats.players import Seats, read_player
    from emads.seats.prices import ApiOptions

    seats, api = chosen or (Seats({}), ApiOptions())
    if run is not None:
        word = f"run:{run}" if (run / "team.json").is_file() else f"run:{run}/{stage}"
        seats = seats.or_else(read_player(word))
    return evaluate_table_suite(suite, seats, api, file=file, count=count, seed=0, out=out, confirm=confirm)


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
    from emads.commands.evaluation.play_validation import play_validation

    play_validation(path, roles, names, count=count, temperature=temperature, num_shown=show)


@takes_seats
def diagnose(
    run: Annotated[
        Path | None,
        typer.Argument(metavar="RUN", help=f"Run folder, default {DEFAULT_RUN}.", show_default=False),
    ] = None,
    stage: Annotated[str, typer.Option(help="The team after this stage: sft, grpo or marl.")] = "marl",
    count: Annotated[int, typer.Option(help="Sealed cases.")] = 200,
    out: OutOption = None,
    *,
    seats: SeatChoice,
) -> int:
    """Find roles that add nothing, are ignored or always agree; swap roles between stages.

    With --seat the players of these seats are probed, and each is replaced by an adversary and by an expert.
    """
    choose_stage(stage, with_base=False)
    check_at_least("--count", count, 20)
    chosen = seats.read()
    if chosen is not None:
        from emads.commands.evaluation.play_seats import diagnose_seats

        home = None if run is None else open_existing(run)
        return end_seats(diagnose_seats(home, stage, *chosen, count=count, out=out))
    path = open_existing(run or DEFAULT_RUN)
    from emads.commands.evaluation.diagnose import diagnose as probe

    probe(path, stage=stage, count=count)
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
    ablations: Annotated[Path | None, typer.Option(help="Folder of ablations for the Markdown page.")] = None,
) -> None:
    """Write the report of each run as one self-contained HTML file."""
    paths = runs or [DEFAULT_RUN]
    if ablations is not None and markdown is None:
        raise UserError(f"--ablations {ablations} goes on the page of --markdown FILE; name one")
    for path in paths:
        refuse_missing_run(path)
    from emads.commands.report import report_runs

    for page in report_runs(paths, markdown=markdown, ablations=ablations):
        typer.echo(page)


def audit(
    tier: Annotated[str, typer.Option(help="pr (under a minute) or full (minutes).")] = "pr",
    family: Annotated[
        list[str] | None, typer.Option(help="Only this family. Repeatable; default: all.")
    ] = None,
    probe: Annotated[
        list[str] | None, typer.Option(help="Only this probe (V1-V6, V9, V10). Repeatable; default: all.")
    ] = None,
    processes: Annotated[int, typer.Option(help="Worker processes.")] = 1,
) -> None:
    """Attack every verifier and show each breach that was found."""
    check_at_least("--processes", processes, 1)
    from evaluation.audit.run_probes import show_audit

    broken = show_audit(tier, family or (), 0, typer.echo, probes=probe or (), processes=processes)
    if broken:
        raise UserError(f"{len(broken)} breaches are listed, the first: {broken[0]}")


@partial(takes_seats, leave_out=("seat",))
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
    count: Annotated[int, typer.Option(help="Pairs of answers that the judge is calibrated on.")] = 40,
    out: Annotated[Path | None, typer.Option(help="File of scores, one JSON line for each answer.")] = None,
    *,
    seats: SeatChoice,
) -> None:
    """Test whether a language model is fit to judge answers; a fit one may then score a folder of them."""
    check_at_least("--count", count, 10)
    if answers is None and (criterion or out):
        raise UserError(f"--{'criterion' if criterion else 'out'} goes with --answers FOLDER")
    pairs = [one.partition("=") for one in criterion or ()]
    for name, _, question in pairs:
        if not name.isidentifier() or not question.strip():
            raise UserError(
                f"--criterion {name!r} is not of the form NAME=QUESTION: clear='is it easy to follow?'"
            )
    from emads.commands.evaluation.judge_answers import judge_answers

    judge_answers(
        seats.read_endpoint(model),
        num_cases=count,
        answers=answers,
        criteria={name: question for name, _, question in pairs},
        out=out,
    )

"""The command line: each verb calls one function of the layers below, which it imports only when it runs.

Every mistake of the user is one line on standard error and exit status 2.
"""

import errno
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from emads.options import (
    DEFAULT_RUN,
    AgentOption,
    ApiKeyOption,
    ConfigOption,
    EngineOption,
    FaultOption,
    LimitOption,
    MaxCostOption,
    ModelOption,
    OneRunOption,
    PriceInOption,
    PriceOutOption,
    PrintOption,
    ProtocolOption,
    ResumeOption,
    ReviewerOption,
    RoleOption,
    RunOption,
    RunsArgument,
    SetOption,
    StoreOption,
    TeacherOption,
    TeacherSetOption,
    TeamOption,
    VerbGroup,
    WorldOption,
    check_at_least,
    choose_roles,
    choose_runs,
    choose_teacher,
    is_governed,
    open_schedule,
    parse_difficulties,
    read_agents,
    resolve_config,
    show_config,
    start_run,
)
from roles.errors import UserError, unknown

if TYPE_CHECKING:
    from simulator.engines.openai.endpoint import EndpointSettings
    from training.data.teacher.teacher import TeachingRules

STAGES = ("base", "sft", "grpo", "marl")
ENVIRONMENT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES)  # not bugs of ours

app = typer.Typer(
    name="emads",
    cls=VerbGroup,
    help="Train and evaluate teams of LLM role agents that make company decisions together.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
train = typer.Typer(
    cls=VerbGroup, help="Run one training stage of a run.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(train, name="train")


@app.command()
def generate(
    out: Annotated[Path, typer.Option(help="Data folder.")] = Path("runs/data"),
    family: Annotated[
        list[str] | None, typer.Option(help="Only this family, or all. Repeatable; default: all.")
    ] = None,
    count: Annotated[int, typer.Option(help="Scenarios per family.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the scenario streams.")] = 0,
    difficulties: Annotated[str, typer.Option(help="Difficulties, as 1,2 or 1-3.")] = "1,2",
    split: Annotated[str, typer.Option(help="train, validation or test.")] = "train",
    processes: Annotated[int | None, typer.Option(help="Worker processes; default: all cores.")] = None,
    certify: Annotated[
        bool, typer.Option("--certify/--no-certify", help="Check every optimum by a second method.")
    ] = True,
    teacher: TeacherOption = None,
    model: ModelOption = None,
    api_key_env: ApiKeyOption = None,
    price_in: PriceInOption = None,
    price_out: PriceOutOption = None,
    max_cost: MaxCostOption = None,
    teacher_set: TeacherSetOption = None,
) -> None:
    """Write verified demonstrations, the oracle's or a teacher's, as Parquet shards; what is done is kept."""
    levels = parse_difficulties(difficulties)
    chosen = choose_teacher(
        teacher,
        teacher_set,
        processes,
        model=model,
        api_key_env=api_key_env,
        price_in=price_in,
        price_out=price_out,
        max_cost=max_cost,
    )
    if chosen is not None:
        _generate_with_teacher(chosen, family or (), count, out, seed, levels, split, certify)
        return
    from training.data.datasets import generate_folder, summarise_folder

    index = generate_folder(
        family or (),
        count,
        out,
        seed=seed,
        difficulties=levels,
        split=split,
        processes=processes,
        certify=certify,
    )
    typer.echo(f"{out}: {summarise_folder(index)}")


def _generate_with_teacher(
    teacher: "tuple[EndpointSettings, TeachingRules]",
    families: Sequence[str],
    count: int,
    out: Path,
    seed: int,
    difficulties: Sequence[int],
    split: str,
    certify: bool,
) -> None:
    from training.data.teacher.folder import summarise_teaching, teach_folder

    endpoint, rules = teacher
    report = teach_folder(
        families,
        count,
        out,
        endpoint=endpoint,
        rules=rules,
        seed=seed,
        difficulties=difficulties,
        split=split,
        certify=certify,
    )
    typer.echo("\n".join(summarise_teaching(report)))
    if report.problem is not None:
        raise UserError(report.problem)


@app.command()
def validate(
    folder: Annotated[Path, typer.Argument(help="Data folder.")],
    keep: Annotated[
        Path | None, typer.Option(help="New data folder for the clean rows; the rejected are listed there.")
    ] = None,
) -> None:
    """Make and score every row of a data folder again, generated or imported, and name what differs."""
    from training.data.tasks.validation import validate_data
    from training.data.validation import summarise

    report = validate_data(folder, keep=keep)
    typer.echo("\n".join(summarise(report)))
    if report.problems:
        raise UserError(f"{folder}: {len(report.problems)} problems, the first: {report.problems[0]}")


@app.command()
def audit(
    tier: Annotated[str, typer.Option(help="pr (under a minute) or full (minutes).")] = "pr",
    family: Annotated[
        list[str] | None, typer.Option(help="Only this family. Repeatable; default: all.")
    ] = None,
    probe: Annotated[
        list[str] | None, typer.Option(help="Only this probe (V1-V6, V9). Repeatable; default: all.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of cases and attacks.")] = 0,
    processes: Annotated[int, typer.Option(help="Worker processes.")] = 1,
    keep: Annotated[
        Path | None, typer.Option(help="File of rows: started again with it, the audit goes on where it was.")
    ] = None,
) -> None:
    """Attack every verifier and show what each probe found."""
    check_at_least("--seed", seed, 0)
    check_at_least("--processes", processes, 1)
    from evaluation.audit.run_audit import show_audit

    broken = show_audit(
        tier, family or (), seed, typer.echo, probes=probe or (), processes=processes, keep=keep
    )
    if broken:
        raise UserError(f"{len(broken)} breaches are listed, the first: {broken[0]}")


@app.command("import")
def import_(
    files: Annotated[list[Path], typer.Argument(help="JSON or JSON Lines files of question and answer.")],
    out: Annotated[Path, typer.Option(help="New data folder.")],
    layout: Annotated[
        str, typer.Option("--format", help="qa: short answers; gsm8k: worked solutions that end in #### n.")
    ] = "qa",
    name: Annotated[str, typer.Option(help="What the tasks are called in rows and keys.")] = "imported",
    check: Annotated[
        str, typer.Option(help="How answers are compared: auto, exact, number, f1 or symbolic.")
    ] = "auto",
) -> None:
    """Write question files as Parquet shards, the test split sealed; bad rows are listed with reasons."""
    from training.data.tasks.importing import import_tasks, summarise_import

    report = import_tasks(files, out, layout=layout, name=name, check=check)
    typer.echo("\n".join(summarise_import(report)))


@app.command()
def conformance(
    source: Annotated[str, typer.Argument(metavar="FILE.py:NAME", help="Your family; its file is run.")],
    count: Annotated[int, typer.Option(help="Scenarios to check it on.")] = 50,
) -> None:
    """Check a family of your own against the contract that every family keeps."""
    check_at_least("--count", count, 10)
    from scenarios.conformance import check
    from scenarios.loading import load_family

    family = load_family(source)
    problems = check(family, count=count)
    typer.echo("\n".join(problems) if problems else f"{family.name} conforms ({count} scenarios)")
    if problems:
        raise UserError(f"{source}: {len(problems)} problems are listed, the first: {problems[0]}")


@train.command("tasks")
def tasks(
    source: Annotated[
        str, typer.Argument(metavar="TASKS", help="Folder of emads import, or maths, lookup or programs.")
    ],
    run: RunOption = DEFAULT_RUN,
    config: ConfigOption = None,
    overrides: SetOption = None,
    print_config: PrintOption = False,
    resume: ResumeOption = False,
) -> None:
    """Train a solver of tasks: base, SFT, GRPO, and its score on the sealed test tasks."""
    opened = start_run(run, config, overrides, resume, print_config)
    from training.stages.task_stages import summarise_tasks, train_tasks

    scores = train_tasks(opened, source, typer.echo)
    typer.echo("\n".join(summarise_tasks(scores, opened.config.evaluation.num_bootstrap)))


@train.command("base")
def base(
    run: RunOption = DEFAULT_RUN,
    config: ConfigOption = None,
    overrides: SetOption = None,
    print_config: PrintOption = False,
    resume: ResumeOption = False,
    fault: FaultOption = None,
) -> None:
    """Make the base model and its tokenizer."""
    opened = start_run(run, config, overrides, resume, print_config, fault)
    from emads.commands.pipeline import train_base

    train_base(opened, opened.config)


@train.command("sft")
def sft(
    run: RunOption = DEFAULT_RUN,
    role: RoleOption = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
    print_config: PrintOption = False,
    resume: ResumeOption = False,
    fault: FaultOption = None,
) -> None:
    """Fine-tune each role on demonstrations."""
    roles = choose_roles(role)
    opened = start_run(run, config, overrides, resume, print_config, fault)
    from emads.commands.pipeline import train_sft

    train_sft(opened, opened.config, roles)


@train.command("grpo")
def grpo(
    run: RunOption = DEFAULT_RUN,
    role: RoleOption = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
    print_config: PrintOption = False,
    resume: ResumeOption = False,
    fault: FaultOption = None,
) -> None:
    """Improve each role alone on its own verifier."""
    roles = choose_roles(role)
    opened = start_run(run, config, overrides, resume, print_config, fault)
    from emads.commands.pipeline import train_grpo

    train_grpo(opened, opened.config, roles)


@train.command("marl")
def marl(
    run: RunOption = DEFAULT_RUN,
    config: ConfigOption = None,
    overrides: SetOption = None,
    print_config: PrintOption = False,
    resume: ResumeOption = False,
    fault: FaultOption = None,
) -> None:
    """Train the whole team jointly on the team reward."""
    opened = start_run(run, config, overrides, resume, print_config, fault)
    from emads.commands.pipeline import train_marl

    train_marl(opened, opened.config)


@app.command()
def simulate(
    cases: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[CASE]...", help="Case files (.yaml, .md); default: test scenarios."),
    ] = None,
    run: TeamOption = DEFAULT_RUN,
    index: Annotated[int | None, typer.Option(help="First test scenario, from 0 (default 0).")] = None,
    count: Annotated[int | None, typer.Option(help="Number of test scenarios (default 1).")] = None,
    stage: Annotated[str, typer.Option(help="Weights after this stage: base, sft, grpo or marl.")] = "marl",
    html: Annotated[Path | None, typer.Option(help="Folder for minutes, one HTML page per episode.")] = None,
    jsonl: Annotated[Path | None, typer.Option(help="File for the episodes, one per line.")] = None,
    atif: Annotated[Path | None, typer.Option(help="Folder for one ATIF document per episode.")] = None,
    spans: Annotated[
        Path | None, typer.Option(help="File for OpenTelemetry spans (pip install 'emads[otel]').")
    ] = None,
    live: Annotated[bool, typer.Option("--live", help="Show what happens while it happens.")] = False,
    engine: EngineOption = None,
    protocol: ProtocolOption = "assess",
    reviewer: ReviewerOption = None,
    db: StoreOption = None,
    world: WorldOption = None,
    agent: AgentOption = None,
    limit: LimitOption = None,
) -> None:
    """Play written cases or test scenarios with a run's team and show who said what."""
    if stage not in STAGES:
        raise unknown("stage", stage, list(STAGES))
    if cases and (index is not None or count is not None):
        raise UserError("--index and --count choose test scenarios: leave them out when case files are given")
    check_at_least("--index", index or 0, 0)
    check_at_least("--count", 1 if count is None else count, 1)
    rules = read_agents(agent or (), limit or ())
    check_at_least("--world", world or 0, 0)
    is_full = is_governed(protocol, reviewer=reviewer, db=db, world=world)
    path = run if is_full else _find_run(run)
    from emads.commands.simulation_outputs import Outputs

    outputs = Outputs(html=html, episodes=jsonl, atif=atif, spans=spans, live=live)
    what: dict[str, Any] = {"cases": cases or (), "index": index or 0, "count": count or 1, **rules}
    if is_full and engine is not None:
        raise UserError("--engine goes with --protocol assess; the full one plays on the embedded engine")
    if is_full:
        from emads.commands.governed import simulate_governed

        simulate_governed(
            str(run),
            stage,
            reviewer=reviewer or "simulated",
            db=db,
            world=world or 0,
            outputs=outputs,
            **what,
        )
        return
    from emads.commands.simulation import simulate as play

    play(path, stage, outputs=outputs, engine_name=engine, **what)


@app.command("serve-env")
def serve_env(
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1.")] = 8700,
    rows: Annotated[Path | None, typer.Option(help="First write scenarios as rows into this file.")] = None,
    name: Annotated[str, typer.Option("--family", help="Family of the rows.")] = "cto",
    count: Annotated[int, typer.Option(help="Number of rows.")] = 100,
    seed: Annotated[int, typer.Option(help="Stream of the rows' scenarios.")] = 0,
    difficulties: Annotated[str, typer.Option(help='Difficulties of the rows, e.g. "1,2" or "1-3".')] = "1-3",
) -> None:
    """Serve role families over HTTP in NeMo Gym's shape, for trainers of others."""
    from scenarios.registry import FAMILIES

    if name not in FAMILIES:
        raise unknown("family", name, list(FAMILIES))
    check_at_least("--count", count, 1)
    check_at_least("--seed", seed, 0)
    levels = parse_difficulties(difficulties)
    if rows is not None:
        from evaluation.environments.http_rows import write_rows

        write_rows(rows, name, split="train", seed=seed, count=count, difficulties=levels)
        typer.echo(f"rows: {rows}")
    try:
        from evaluation.environments.http_env import serve
    except ImportError:
        raise UserError("serving needs FastAPI and uvicorn; pip install 'emads[http]'") from None
    serve(port)


@app.command()
def rescore(
    episodes: Annotated[Path, typer.Argument(help="Episodes, as `emads simulate --jsonl` writes them.")],
    weights: Annotated[
        list[str] | None, typer.Option(help="Change one weight: consensus=0.5. Repeatable.")
    ] = None,
) -> None:
    """Score stored episodes again under other weights of the team reward."""
    from evaluation.scoring.rescore import print_rescoring

    print_rescoring(episodes, weights or ())


@app.command()
def evaluate(
    runs: RunsArgument = None,
    run: OneRunOption = None,
    again: Annotated[bool, typer.Option("--again", help="Play everything anew.")] = False,
    gate: Annotated[
        Path | None, typer.Option(help="YAML file of thresholds; a missed one gives exit status 3.")
    ] = None,
    tasks: Annotated[
        Path | None, typer.Option(help="Folder of question files: these are answered instead.")
    ] = None,
    stage: Annotated[str, typer.Option(help="With --tasks: weights after this stage.")] = "marl",
    who: Annotated[str, typer.Option("--role", help="With --tasks: whose weights answer.")] = "cto",
) -> int:
    """Score every finished stage of one run or several on the sealed test split; seeds are compared."""
    paths = choose_runs(runs, run)
    if tasks is not None:
        if again or gate is not None or len(paths) > 1:
            raise UserError("--tasks goes with one run, and without --again and --gate")
        if stage not in STAGES:
            raise unknown("stage", stage, list(STAGES))
        (role,) = choose_roles([who])
        from emads.commands.task_evaluation import evaluate_tasks

        evaluate_tasks(_find_run(paths[0]), tasks, stage=stage, role=role)
        return 0
    from emads.commands.evaluating import evaluate_runs

    return evaluate_runs(paths, again=again, gate=gate)


@app.command()
def diagnose(
    run: RunOption = DEFAULT_RUN,
    stage: Annotated[str, typer.Option(help="The team after this stage: sft, grpo or marl.")] = "marl",
    count: Annotated[int, typer.Option(help="Sealed cases.")] = 200,
    against: Annotated[
        list[Path] | None, typer.Option(help="Other runs to swap roles with. Repeatable.")
    ] = None,
) -> None:
    """Find free riders, ignored roles, yes-sayers; swap roles between stages and runs."""
    if stage not in STAGES[1:]:
        raise unknown("stage", stage, list(STAGES[1:]))
    check_at_least("--count", count, 20)
    path = _find_run(run)
    from emads.commands.diagnosing import diagnose as probe

    probe(path, stage=stage, count=count, against=against or ())


@app.command()
def ablate(
    plan: Annotated[
        Path, typer.Option("--config", help="YAML file of the ablation, as in configs/ablations.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of ablations, which share equal stages.")] = Path(
        "runs/ablations"
    ),
    workers: Annotated[int, typer.Option(help="Worker processes; 0 runs in this one.")] = 2,
) -> None:
    """Train and score every cell of a grid over config keys; what is done is kept."""
    check_at_least("--workers", workers, 0)
    from emads.commands.ablation import ablate as run_ablation

    run_ablation(plan, out, workers=workers)


@app.command()
def report(
    runs: RunsArgument = None,
    run: OneRunOption = None,
    markdown: Annotated[
        Path | None, typer.Option(help="Also write one Markdown page of all runs: docs/results.md.")
    ] = None,
    ablations: Annotated[Path | None, typer.Option(help="Folder of ablations for the Markdown page.")] = None,
) -> None:
    """Write the report of one run or several, one self-contained HTML file each."""
    paths = choose_runs(runs, run)
    from emads.commands.reporting import report_runs

    for path in report_runs(paths, markdown=markdown, ablations=ablations):
        typer.echo(path)


@app.command()
def demo(
    run: RunOption = DEFAULT_RUN,
    seeds: Annotated[int, typer.Option(help="Independent runs whose results are shown together.")] = 1,
    controls: Annotated[
        bool, typer.Option("--controls", help="Also train the same-time SFT control.")
    ] = False,
    config: ConfigOption = None,
    overrides: SetOption = None,
    print_config: PrintOption = False,
    resume: ResumeOption = False,
    fault: FaultOption = None,
) -> int:
    """Everything in minutes on a laptop: data, SFT, GRPO, joint RL, evaluation, report."""
    from training.runs.faults import parse_faults

    check_at_least("--seeds", seeds, 1)
    resolved = resolve_config(run, config, overrides, resume)
    if print_config:
        show_config(resolved)
    from emads.commands.pipeline import run_demo

    return run_demo(run, resolved, seeds, controls, resume, parse_faults(fault or ()))


@app.command("run")
def run_schedule(
    config: ConfigOption = None,
    overrides: SetOption = None,
    run: Annotated[
        Path | None, typer.Option("--run", help="Run folder (default: runs/NAME of the config).")
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option("--resume", metavar="RUN", help="Go on with this run; nothing else is taken."),
    ] = None,
    fault: FaultOption = None,
    print_config: PrintOption = False,
) -> None:
    """The whole schedule: SFT, RLVR per role, joint RL, cases for people; what is done is skipped."""
    opened = open_schedule(config, overrides, run, resume, fault, print_config)
    from emads.commands.schedule import run_schedule as perform

    perform(opened, typer.echo)


@app.command()
def plan(
    config: ConfigOption = None,
    overrides: SetOption = None,
    device: Annotated[
        str, typer.Option(help="a100, h100, h200, or cpu (measured for some seconds).")
    ] = "a100",
    ranks: Annotated[int, typer.Option(help="Devices that share the work.")] = 1,
    price: Annotated[float | None, typer.Option(help="Price of one device per hour.")] = None,
    workload: Annotated[
        str | None, typer.Option(help="TASKSxROLLOUTSxTURNS for one epoch, e.g. 500x8x5, in place of phases.")
    ] = None,
) -> None:
    """Hours, memory and price of a config before anything runs."""
    check_at_least("--ranks", ranks, 1)
    from training.config.loading import load_config
    from training.planning.table import show_plan

    typer.echo(show_plan(load_config(config, overrides or ()), device, ranks, price, workload))


def _find_run(path: Path) -> Path:
    from training.runs.run_folder import Run

    return Run.open(path).path


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit status: 2 for a mistake of the user, 130 when interrupted."""
    try:
        status = app(args=arguments, prog_name="emads", standalone_mode=False)
    except UserError as error:
        return _complain(str(error), error.status)
    except typer.TyperException as error:
        message = error.format_message()
        if not message.startswith("Usage:"):
            return _complain(message)
        print(message, file=sys.stderr)  # no verb was given: this is the help
        return 2
    except OSError as error:
        if error.errno not in ENVIRONMENT_ERRORS:
            raise
        return _complain(f"{error.strerror}: {error.filename or 'while writing'}")
    except (KeyboardInterrupt, typer.Abort):
        return 130
    return status if isinstance(status, int) else 0


def _complain(message: str, status: int = 2) -> int:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())

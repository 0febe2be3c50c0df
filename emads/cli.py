"""The command line: each verb calls one function of the layers below, which it imports only when it runs.

Every mistake of the user is one line on standard error and exit status 2.
"""

import errno
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from emads.options import (
    DEFAULT_RUN,
    ConfigOption,
    PrintOption,
    ResumeOption,
    RoleOption,
    RunOption,
    SetOption,
    TeamOption,
    VerbGroup,
    check_at_least,
    choose_roles,
    parse_difficulties,
    resolve_config,
    show_config,
    start_run,
)
from roles.errors import UserError, unknown

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
        list[str] | None, typer.Option(help="Only this family. Repeatable; default: all.")
    ] = None,
    count: Annotated[int, typer.Option(help="Scenarios per family.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the scenario streams.")] = 0,
    difficulties: Annotated[str, typer.Option(help="Difficulties, as 1,2 or 1-3.")] = "1,2",
    split: Annotated[str, typer.Option(help="train, validation or test.")] = "train",
    processes: Annotated[int, typer.Option(help="Worker processes.")] = 1,
) -> None:
    """Write verified demonstrations as Parquet shards; finished shards are kept."""
    from training.datasets import generate_folder

    levels = parse_difficulties(difficulties)
    index = generate_folder(
        family or (), count, out, seed=seed, difficulties=levels, split=split, processes=processes
    )
    typer.echo(f"{sum(shard.num_rows for shard in index.shards)} rows in {len(index.shards)} shards in {out}")


@app.command()
def validate(folder: Annotated[Path, typer.Argument(help="Data folder.")]) -> None:
    """Generate and score every row of a data folder again, and name what differs."""
    from training.dataset_validation import summarise, validate_folder

    report = validate_folder(folder)
    typer.echo("\n".join(summarise(report)))
    if report.problems:
        raise UserError(f"{folder}: {len(report.problems)} problems, the first: {report.problems[0]}")


@train.command("base")
def base(
    run: RunOption = DEFAULT_RUN,
    config: ConfigOption = None,
    overrides: SetOption = None,
    print_config: PrintOption = False,
    resume: ResumeOption = False,
) -> None:
    """Make the base model and its tokenizer."""
    opened = start_run(run, config, overrides, resume, print_config)
    from training.pipeline import train_base

    train_base(opened, opened.config)


@train.command("sft")
def sft(
    run: RunOption = DEFAULT_RUN,
    role: RoleOption = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
    print_config: PrintOption = False,
    resume: ResumeOption = False,
) -> None:
    """Fine-tune each role on demonstrations."""
    roles = choose_roles(role)
    opened = start_run(run, config, overrides, resume, print_config)
    from training.pipeline import train_sft

    train_sft(opened, opened.config, roles)


@train.command("grpo")
def grpo(
    run: RunOption = DEFAULT_RUN,
    role: RoleOption = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
    print_config: PrintOption = False,
    resume: ResumeOption = False,
) -> None:
    """Improve each role alone on its own verifier."""
    roles = choose_roles(role)
    opened = start_run(run, config, overrides, resume, print_config)
    from training.pipeline import train_grpo

    train_grpo(opened, opened.config, roles)


@train.command("marl")
def marl(
    run: RunOption = DEFAULT_RUN,
    config: ConfigOption = None,
    overrides: SetOption = None,
    print_config: PrintOption = False,
    resume: ResumeOption = False,
) -> None:
    """Train the whole team jointly on the team reward."""
    opened = start_run(run, config, overrides, resume, print_config)
    from training.pipeline import train_marl

    train_marl(opened, opened.config)


@app.command()
def simulate(
    run: TeamOption = DEFAULT_RUN,
    index: Annotated[int, typer.Option(help="First test scenario, from 0.")] = 0,
    count: Annotated[int, typer.Option(help="Number of scenarios.")] = 1,
    stage: Annotated[str, typer.Option(help="Weights after this stage: base, sft, grpo or marl.")] = "marl",
) -> None:
    """Play test scenarios with a run's team and show who said what."""
    if stage not in STAGES:
        raise unknown("stage", stage, list(STAGES))
    check_at_least("--index", index, 0)
    check_at_least("--count", count, 1)
    path = _find_run(run)
    from training.pipeline import simulate_team

    simulate_team(path, index, count, stage)


@app.command()
def evaluate(run: RunOption = DEFAULT_RUN) -> None:
    """Score every finished stage of a run on the sealed test split."""
    path = _find_run(run)
    from training.pipeline import evaluate_run

    evaluate_run(path)


@app.command()
def report(run: RunOption = DEFAULT_RUN) -> None:
    """Write the report of a run."""
    path = _find_run(run)
    from evaluation.report import write_report

    typer.echo(write_report(path))


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
) -> int:
    """Everything in minutes on a laptop: data, SFT, GRPO, joint RL, evaluation, report."""
    check_at_least("--seeds", seeds, 1)
    resolved = resolve_config(run, config, overrides, resume)
    if print_config:
        show_config(resolved)
    from training.pipeline import run_demo

    return run_demo(run, resolved, seeds, controls, resume)


def _find_run(path: Path) -> Path:
    from training.runs import Run

    return Run.open(path).path


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit status: 2 for a mistake of the user, 130 when interrupted."""
    try:
        status = app(args=arguments, prog_name="emads", standalone_mode=False)
    except UserError as error:
        return _complain(str(error))
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


def _complain(message: str) -> int:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())

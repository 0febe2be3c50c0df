"""Verbs that train (train base|sft|grpo|marl|tasks, demo, run), and plan, which says what training takes."""

from pathlib import Path
from typing import Annotated

import typer

from emads.cli.choices import (
    check_at_least,
    choose_config,
    choose_roles,
    resolve_config,
    show_config,
    start_run,
    start_schedule,
)
from emads.cli.options import (
    DEFAULT_RUN,
    ConfigOption,
    FaultOption,
    PrintOption,
    ResumeOption,
    RoleOption,
    RunArgument,
    SetOption,
    TakeOption,
)


def base(
    run: RunArgument,
    config: ConfigOption = None,
    overrides: SetOption = None,
    print_config: PrintOption = False,
    resume: ResumeOption = False,
    fault: FaultOption = None,
    take_from: TakeOption = None,
) -> None:
    """Make the base model and its tokenizer."""
    opened = start_run(run, config, overrides, resume, print_config, fault)
    from emads.commands.train import take_stages, train_stage

    take_stages(opened, take_from)
    train_stage(opened, "base")


def sft(
    run: RunArgument,
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
    from emads.commands.train import train_stage

    train_stage(opened, "sft", roles)


def grpo(
    run: RunArgument,
    role: RoleOption = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
    print_config: PrintOption = False,
    resume: ResumeOption = False,
    fault: FaultOption = None,
) -> None:
    """Train each role alone on the reward of its verifier."""
    roles = choose_roles(role)
    opened = start_run(run, config, overrides, resume, print_config, fault)
    from emads.commands.train import train_stage

    train_stage(opened, "grpo", roles)


def marl(
    run: RunArgument,
    config: ConfigOption = None,
    overrides: SetOption = None,
    print_config: PrintOption = False,
    resume: ResumeOption = False,
    fault: FaultOption = None,
    end_here: Annotated[
        bool,
        typer.Option("--end-here", help="Take the newest checkpoint as the result, without a further step."),
    ] = False,
) -> None:
    """Train the whole team jointly on the team reward."""
    opened = start_run(run, config, overrides, resume, print_config, fault)
    from emads.commands.train import train_stage

    train_stage(opened, "marl", ends_here=end_here)


def tasks(
    run: RunArgument,
    source: Annotated[
        str,
        typer.Argument(metavar="TASKS", help="Folder of emads import, or a task family: maths, lookup..."),
    ],
    config: ConfigOption = None,
    overrides: SetOption = None,
    print_config: PrintOption = False,
    resume: ResumeOption = False,
) -> None:
    """Train a solver of tasks: base, SFT, GRPO, and its score on the sealed test tasks."""
    opened = start_run(run, config, overrides, resume, print_config)
    from training.stages.tasks import summarise_tasks, train_tasks

    scores = train_tasks(opened, source, typer.echo)
    typer.echo("\n".join(summarise_tasks(scores, opened.config.evaluation.num_bootstrap)))


def demo(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")] = DEFAULT_RUN,
    seeds: Annotated[int, typer.Option(help="Independent runs whose results are shown together.")] = 1,
    controls: Annotated[
        bool,
        typer.Option("--controls", help="Also train the controls: the same compute without joint training."),
    ] = False,
    config: ConfigOption = None,
    overrides: SetOption = None,
    print_config: PrintOption = False,
    resume: ResumeOption = False,
    fault: FaultOption = None,
    gate: Annotated[bool, typer.Option("--gate", help="End with status 3 where a gate is red.")] = False,
) -> int:
    """Run everything in minutes on a laptop: data, SFT, GRPO, joint RL, evaluation, report."""
    from training.runs.faults import parse_faults

    check_at_least("--seeds", seeds, 1)
    resolved = resolve_config(run, config, overrides, resume, has_default=True)
    if print_config:
        show_config(resolved)
    from emads.commands.demo import run_demo

    return run_demo(run, resolved, seeds, controls, resume, parse_faults(fault or ()), gate=gate)


def run_schedule(
    run: Annotated[
        Path | None,
        typer.Argument(
            metavar="RUN", help="Run folder; default runs/NAME of the config.", show_default=False
        ),
    ] = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
    print_config: PrintOption = False,
    resume: ResumeOption = False,
    fault: FaultOption = None,
    take_from: TakeOption = None,
) -> None:
    """Run the whole schedule: SFT, GRPO per role, joint RL, a review queue; what is done is skipped."""
    opened = start_schedule(run, config, overrides, resume, print_config, fault)
    from emads.commands.run_schedule import run_schedule as perform
    from emads.commands.train import take_stages

    take_stages(opened, take_from)
    perform(opened, typer.echo)


def plan(
    run: Annotated[
        Path | None,
        typer.Argument(metavar="RUN", help="Existing run whose config is planned.", show_default=False),
    ] = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
    device: Annotated[
        str, typer.Option(help="cpu: this machine, measured for some seconds; or a100, h100, h200.")
    ] = "cpu",
    ranks: Annotated[int, typer.Option(help="Devices that share the work.")] = 1,
    price: Annotated[float | None, typer.Option(help="Price of one device per hour.")] = None,
    workload: Annotated[
        str | None, typer.Option(help="TASKSxROLLOUTSxTURNS for one epoch, e.g. 500x8x5, in place of phases.")
    ] = None,
) -> None:
    """Estimate hours, memory and price of a config before anything runs."""
    check_at_least("--ranks", ranks, 1)
    resolved = choose_config(run, config, overrides)
    from training.planning.table import show_plan

    typer.echo(show_plan(resolved, device, ranks, price, workload))

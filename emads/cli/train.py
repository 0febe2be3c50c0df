"""Verbs that train (train STAGE, demo, run), and plan, which says what training takes."""

import math
from pathlib import Path
from typing import Annotated

import typer

from emads.cli.options import (
    DEFAULT_RUN,
    ConfigOption,
    PrintOption,
    ResumeOption,
    RoleOption,
    RunArgument,
    SetOption,
    TakeOption,
    check_at_least,
    choose_roles,
    open_existing,
    start_run,
)
from emads.seats import STAGES
from roles.errors import UserError, unknown

DEMO_CONFIG = Path(__file__).parents[1] / "demo.yaml"
LABEL_STAGES = ("corrections", "dpo", "reward", "ppo")
TASKS = "tasks"


def train(
    stage: Annotated[
        str,
        typer.Argument(
            metavar="STAGE",
            help="base; sft, grpo (roles alone); marl (the team); tasks (a solver);"
            " corrections, dpo, reward, ppo (on labels of reviewers).",
        ),
    ],
    run: RunArgument,
    tasks: Annotated[
        str | None,
        typer.Argument(
            metavar="[TASKS]",
            help="With tasks: a folder of emads import, or a task family such as maths.",
            show_default=False,
        ),
    ] = None,
    role: RoleOption = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
    resume: ResumeOption = False,
    take_from: TakeOption = None,
    labels: Annotated[Path | None, typer.Option("--labels", help="Label file (JSONL) of reviewers.")] = None,
    end_here: Annotated[
        bool,
        typer.Option("--end-here", help="With marl: take the newest checkpoint as the result."),
    ] = False,
) -> None:
    """Train one stage of a run; what is done is kept.

    \b
    emads train sft runs/trial --config configs/tiny.yaml --role cto
    emads train dpo runs/trial --labels labels.jsonl          (--set changes settings of the stage: epochs=2)
    """
    if stage not in (*STAGES, TASKS, *LABEL_STAGES):
        raise unknown("stage", stage, [*STAGES, TASKS, *LABEL_STAGES])
    given: dict[str, tuple[object, tuple[str, ...]]] = {
        "TASKS": (tasks, (TASKS,)),
        "--role": (role, ("sft", "grpo", *LABEL_STAGES)),
        "--config": (config, (*STAGES, TASKS)),
        "--take-from": (take_from, ("base",)),
        "--labels": (labels, LABEL_STAGES[:-1]),  # ppo learns from the reward model
        "--end-here": (end_here, ("marl",)),
    }
    for name, (value, stages) in given.items():
        if value and stage not in stages:
            raise UserError(f"{name} goes with {', '.join(stages)}, not with {stage}")
    roles = choose_roles(role)
    if stage in LABEL_STAGES:
        _train_on_labels(stage, run, roles, labels, overrides or [], resume=resume)
        return
    if stage == TASKS and tasks is None:
        raise UserError("name the TASKS: a folder of emads import, or a task family such as maths")
    opened, _ = start_run(run, config, overrides, resume)
    if tasks is not None:
        from training.stages.tasks import summarise_tasks, train_tasks

        scores = train_tasks(opened, tasks, typer.echo)
        typer.echo("\n".join(summarise_tasks(scores)))
        return
    from emads.commands.stages import take_stages, train_stages

    take_stages(opened, take_from)
    train_stages(opened, stage, roles, ends_here=end_here)


def _train_on_labels(
    stage: str, path: Path, roles: tuple[str, ...], labels: Path | None, settings: list[str], *, resume: bool
) -> None:
    open_existing(path)
    from emads.commands.stages import train_on_labels
    from training.models.weights import stage_marker
    from training.runs.run_folder import Run

    run = Run.open(path)
    train_on_labels(run, stage, roles, labels, settings, resume=resume)
    if stage != "reward":
        typer.echo(f"see what changed with `emads evaluate {path}`")
        return
    for one in roles:
        facts = run.read_payload(stage_marker(run, stage, one))
        share = facts.get("accuracy")
        shown = "not measured" if share is None else f"{share:.2f} on {facts['num_held_out']:.0f} others"
        typer.echo(f"{one}: reward model of {facts['num_rows']:.0f} comparisons, accuracy {shown}")


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
    gate: Annotated[bool, typer.Option("--gate", help="End with status 3 where a gate is red.")] = False,
) -> int:
    """Run everything in minutes on a laptop: data, SFT, GRPO, joint RL, evaluation, report."""
    check_at_least("--seeds", seeds, 1)
    _, resolved = start_run(run, config, overrides, resume, default=DEMO_CONFIG, print_config=print_config)
    from emads.commands.evaluate import run_demo

    return run_demo(run, resolved, seeds, controls, resume, gate=gate)


def run_schedule(
    run: Annotated[
        Path | None,
        typer.Argument(
            metavar="RUN", help="Run folder; default runs/NAME of the config.", show_default=False
        ),
    ] = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
    resume: ResumeOption = False,
    take_from: TakeOption = None,
) -> None:
    """Run the whole schedule: SFT, GRPO per role, joint RL, a review queue; what is done is skipped."""
    if run is None:
        if config is None or resume:
            raise UserError(
                "give RUN, an existing run, or --config FILE, e.g. --config configs/schedules/tiny.yaml"
            )
        from training.config.loading import load_config

        run = Path("runs") / load_config(config, overrides or ()).name
    opened, _ = start_run(run, config, overrides, resume)
    from emads.commands.stages import run_schedule as perform
    from emads.commands.stages import take_stages

    take_stages(opened, take_from)
    typer.echo("\n".join(perform(opened)))


def plan(
    run: Annotated[
        Path | None,
        typer.Argument(metavar="RUN", help="Existing run whose config is planned.", show_default=False),
    ] = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
    device: Annotated[str, typer.Option(help="a100, h100 or h200.")] = "h100",
    ranks: Annotated[int, typer.Option(help="Devices that share the work.")] = 1,
    price: Annotated[float | None, typer.Option(help="Price of one device per hour.")] = None,
    workload: Annotated[
        str | None, typer.Option(help="TASKSxROLLOUTSxTURNS for one epoch, e.g. 500x8x5, in place of phases.")
    ] = None,
) -> None:
    """Estimate hours, memory and price of a config before anything runs."""
    check_at_least("--ranks", ranks, 1)
    if price is not None and not 0 <= price < math.inf:
        raise UserError(f"--price {price} must be a number of 0 or more")
    if run is not None and config is not None:
        raise UserError(f"give the run {run} or --config {config}, not both")
    from training.config.loading import load_config

    source = config if run is None else open_existing(run) / "config.yaml"
    resolved = load_config(source, overrides or ())
    from training.planning import show_plan

    typer.echo(show_plan(resolved, device, ranks, price, workload))

"""`emads demo`: every stage of every seed, then tables, one case after every stage, and the report."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from emads.commands.evaluation.evaluate_run import add_wall_time, print_summary, summarise
from emads.commands.evaluation.evaluation_store import store_details
from emads.commands.simulation.episodes_side_by_side import write_episodes_side_by_side
from emads.commands.stage_tasks import control_tasks, demo_tasks, perform
from evaluation.comparison.seeds import compare_seeds, read_seed, write_seed_comparison
from evaluation.minutes.episode_in_words import join_words
from evaluation.minutes.stages_side_by_side import read_side_by_side, render_side_by_side_text
from evaluation.report.page import write_report
from evaluation.summary.gates import failed_gates, unjudged_gates
from evaluation.summary.run_summary import combine_seeds, write_summary
from training.config.run_config import RunConfig
from training.roles.alarm_files import read_alarms
from training.runs.run_folder import Run
from training.stages.controls import check_controls

GATE_FAILURE = 3  # exit status of a demo or an evaluation whose gates are red, where gates are asked for


def run_demo(
    path: Path,
    config: RunConfig,
    seeds: int,
    controls: bool,
    resume: bool,
    *,
    gate: bool = False,
) -> int:
    """Do all stages for every seed, then show tables, one episode before and after, and the report.

    `controls`: train and score the controls, too, after each seed's own stages.

    Returns: GATE_FAILURE where `gate` is asked for and a gate is red, else 0; a demo too small for its
        gates leaves them unjudged.

    Raises:
        UserError: controls that the config leaves no room for.
    """
    if controls:
        check_controls(config)
    summaries: list[dict[str, Any]] = []
    folders: list[Path] = []
    for number in range(seeds):
        seed = config.seed + number
        seeded = config.model_copy(
            update={"seed": seed, "data": config.data.model_copy(update={"seed": config.data.seed + number})}
        )
        folder = path if number == 0 else path / f"seed-{seed}"
        folders.append(folder)
        run = Run.create(folder, seeded, resume=resume)
        summaries.append(
            run_all(run, controls=controls, title=f"demo (seed {seed})" if seeds > 1 else "demo")
        )
    summary = combine_seeds(summaries) if seeds > 1 else summaries[0]
    write_summary(path, summary)
    if seeds > 1:
        scored = [read_seed(folder, one["seed"]) for folder, one in zip(folders, summaries, strict=True)]
        write_seed_comparison(path, compare_seeds(scored, same_scenarios=False))
    report = write_report(path)
    print_summary(summary)
    _print_episode(Run.open(path))
    print_alarms(Run.open(path))
    print(f"\nsummary: {path / 'summary.json'}\nreport:  {report}")
    print(f"gates:   {describe_gates(summary)}")
    failed = failed_gates(summary)
    if failed:
        print("A red gate is a result that misses its threshold; every stage ran (status 3 with --gate).")
    return GATE_FAILURE if failed and gate else 0


def describe_gates(summary: Mapping[str, Any]) -> str:
    """Return one line: the red gates, or that all are green, and how many were not judged."""
    failed, unjudged = failed_gates(summary), unjudged_gates(summary)
    line = "RED: " + ", ".join(failed) if failed else "all green"
    if unjudged:
        line = f"{len(unjudged)} not judged: too few scenarios to measure training by; the others: {line}"
    return line


def run_all(run: Run, *, controls: bool, title: str) -> dict[str, Any]:
    """Every stage and evaluation of one run that is not done yet; its summary.

    The controls follow the run's own stages and are not in its wall time.
    """
    start = time.monotonic()
    perform(run, demo_tasks(run), title)
    wall_s = add_wall_time(run, time.monotonic() - start)
    if controls:
        perform(run, control_tasks(run), f"controls of {title}")
    write_episodes_side_by_side(run)
    summary = summarise(run, wall_s=wall_s)
    write_summary(run.path, summary)
    store_details(run)
    return summary


def print_alarms(run: Run) -> None:
    """The alarms that went off while roles were trained, one line each."""
    for line in read_alarms(run):
        print(f"ALARM {line}")


def _print_episode(run: Run) -> None:
    cases = read_side_by_side(run.path)
    if cases:
        stages = join_words([play.label for play in cases[0].plays])
        print(f"\nOne sealed case after {stages}, the one with the median change of {cases[0].num_cases}:\n")
        print(render_side_by_side_text(cases[0].plays, width=110))

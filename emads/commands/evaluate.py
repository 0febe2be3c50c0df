"""`emads evaluate`, `demo` and `report`: sealed scores of runs, summaries, seeds compared, gates, pages."""

import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean, variance
from typing import Any

from emads.commands.stages import (
    baselines_task,
    control_tasks,
    demo_tasks,
    evaluate_task,
    governed_tasks,
    has_pretrained_base,
    perform,
    perform_timed,
)
from evaluation.minutes.transcript import ChosenCase, choose_cases, describe_outcome
from evaluation.report.page import write_report, write_results_page
from evaluation.scoring.outcomes import TEAM, Mode, StagePlays, TeamOutcome, read_plays
from evaluation.summary.comparison import (
    compare_seeds,
    read_seed_comparison,
    seed_comparison_tables,
    write_seed_comparison,
)
from evaluation.summary.gates import (
    GateRule,
    RunGate,
    check_gate_rules,
    failed_gates,
    read_gate_file,
    unjudged_gates,
)
from evaluation.summary.run_summary import build_summary, combine_seeds, read_summary, write_summary
from evaluation.summary.run_tables import detail_tables, gate_table, summary_tables
from evaluation.summary.tables import STAGE_TITLES, PlainTable, print_tables
from roles.errors import UserError
from roles.registry import ROLES
from roles.team import TEAM_ROLES
from scenarios.base import SEALED
from scenarios.team.single import SINGLE
from training.config.run_config import RunConfig, compute_digest
from training.data.demonstrations import team_scenario
from training.models.weights import stage_marker
from training.rl.solo.alarms import alarms_by_stage, read_alarms
from training.runs.run_folder import Run, find_versions
from training.stages.evaluation import GOVERNED_STAGES, UNTRAINED, play_sealed_role, weights_of
from training.stages.from_config import choose_game, test_difficulties
from training.stages.table import STAGES, list_stages

GATE_FAILURE = 3  # exit status of a demo or an evaluation whose gates are red, where gates are asked for
SHOWN_STAGES = ("sft", "grpo", "marl")


def run_demo(
    path: Path, config: RunConfig, seeds: int, controls: bool, resume: bool, *, gate: bool = False
) -> int:
    """Do all stages for every seed, then show tables and write the report.

    `controls`: train and score the controls, too, after each seed's own stages.

    Returns: GATE_FAILURE where `gate` is asked for and a gate is red, else 0; a demo too small for its
        gates leaves them unjudged.
    """
    runs = []
    for number in range(seeds):
        data = config.data.model_copy(update={"seed": config.data.seed + number})
        seeded = config.model_copy(update={"seed": config.seed + number, "data": data})
        folder = path if number == 0 else path / f"seed-{seeded.seed}"
        runs.append(Run.create(folder, seeded, resume=resume))
    summaries = [
        run_all(run, controls=controls, title=f"demo (seed {run.config.seed})" if seeds > 1 else "demo")
        for run in runs
    ]
    summary = combine_seeds(summaries) if seeds > 1 else summaries[0]
    write_summary(path, summary)
    if seeds > 1:
        write_seed_comparison(path, _compare(runs, same_scenarios=False))
    report = write_report(path)
    print_summary(summary)
    for line in read_alarms(runs[0]):
        print(f"ALARM {line}")
    print(f"\nsummary: {path / 'summary.json'}\nreport:  {report}")
    print(f"gates:   {describe_gates(summary)}")
    failed = failed_gates(summary)
    if failed:
        print("A red gate is a result that misses its threshold; every stage ran (status 3 with --gate).")
    return GATE_FAILURE if failed and gate else 0


def run_all(run: Run, *, controls: bool, title: str) -> dict[str, Any]:
    """Do every stage and evaluation of one run that is not done yet; return its summary.

    The controls follow the run's own stages and are not in its wall time.
    """
    wall_s = perform_timed(run, demo_tasks(run), title)
    if controls:
        perform(run, control_tasks(run), f"controls of {title}")
    return _sum_up(run, wall_s)


def describe_gates(summary: Mapping[str, Any]) -> str:
    """Return one line: the red gates, or that all are green, and how many were not judged."""
    failed, unjudged = failed_gates(summary), unjudged_gates(summary)
    line = "RED: " + ", ".join(failed) if failed else "all green"
    if unjudged:
        line = f"{len(unjudged)} not judged: too few scenarios to measure training by; the others: {line}"
    return line


def evaluate_runs(paths: Sequence[Path], *, again: bool = False, gate: Path | None = None) -> int:
    """Evaluate every run, compare several as seeds, check gates.

    Returns: 0, or 3 where a gate of the file is missed.

    Raises:
        UserError: no run there, a gate file with a mistake, no weights.
    """
    rules = read_gate_file(gate) if gate is not None else []
    runs = find_runs(paths)
    for run in runs:
        summary = evaluate_run(run.path, again=again)
        print_summary(summary)
        print_tables(detail_tables(summary["details"]))
    if len(runs) > 1:
        compare_runs(runs)
    return check_run_gates(runs, rules) if rules else 0


def compare_new_sectors(path: Path, stage: str, count: int, roles: Sequence[str]) -> PlainTable:
    """Rewards of a run's roles on `count` scenarios of the test split and of test-new-sectors, side by side.

    Plays are kept in scores/new-sectors of the run.

    Raises:
        UserError: no run there, or a role without weights of the stage.
    """
    run = Run.open(path)
    rows = []
    for role in roles:
        folders = [run.path / "scores" / "new-sectors" / split for split in SEALED]
        old, new = (
            play_sealed_role(run, stage, role, count, folder, split).column("reward")
            for folder, split in zip(folders, SEALED, strict=True)
        )
        error = (variance(old) / len(old) + variance(new) / len(new)) ** 0.5 if count > 1 else 0.0
        change = fmean(new) - fmean(old)
        rows.append((role, f"{fmean(old):.3f}", f"{fmean(new):.3f}", f"{change:+.3f}", f"{error:.3f}"))
    return PlainTable(
        title=f"Reward after {stage} in sectors and a wording that no training case has",
        titles=("role", *SEALED, "difference", "standard error"),
        rows=tuple(rows),
        caption=f"{count} sealed scenarios of each split and role.",
    )


def find_runs(paths: Sequence[Path]) -> list[Run]:
    """Return the runs in these folders: a run, its further seeds in `seed-N` below it, or a folder of runs.

    Raises:
        UserError: a folder without any run.
    """
    folders: dict[Path, None] = {}
    for path in paths:
        below = sorted(file.parent for file in path.glob("*/config.yaml"))
        is_run = (path / "config.yaml").is_file()
        found = [path, *(one for one in below if one.name.startswith("seed-"))] if is_run else below
        if not found:
            Run.open(path)  # says what is missing
        folders |= dict.fromkeys(found)
    return [Run.open(folder) for folder in folders]


def evaluate_run(path: Path, *, again: bool = False) -> dict[str, Any]:
    """Score every finished stage on the sealed test split; write summary.json and return what it holds.

    What is stored is kept, down to single plays; `again` plays everything anew.
    """
    run = Run.open(path)
    if again:
        for folder in (run.path / "scores", run.path / "stages" / "evaluate"):
            shutil.rmtree(folder, ignore_errors=True)
    tasks = [baselines_task(run)]
    titles = [UNTRAINED, *list_stages("schedule", "role_control", "labels")]
    for stage in (one for one in titles if one not in ("base", "reward")):
        roles = [role for role in ROLES if _is_trained(run, weights_of(stage), role)]
        if stage == UNTRAINED and not has_pretrained_base(run):
            roles = [role for role in roles if not _is_trained(run, "sft", role)]
        tasks += [evaluate_task(run, stage, role) for role in roles]
        if set(TEAM_ROLES) <= set(roles):
            tasks.append(evaluate_task(run, stage))
    for stage in list_stages("team_control"):
        if _is_trained(run, stage, SINGLE if STAGES[stage].owners == "single" else None):
            tasks.append(evaluate_task(run, stage))
    tasks += governed_tasks(run, [stage for stage in GOVERNED_STAGES if _is_trained(run, stage)])
    return _sum_up(run, perform_timed(run, tasks, "evaluation"))


def _is_trained(run: Run, stage: str, role: str | None = None) -> bool:
    """Tell whether a role, by default every role of the team, has the weights of a stage."""
    return all(
        run.is_done(stage_marker(run, stage, one)) for one in (TEAM_ROLES if role is None else (role,))
    )


def _sum_up(run: Run, wall_s: float) -> dict[str, Any]:
    """Write the summary that follows from a run's plays."""
    plays = read_plays(run.path)
    if not any(one.owner != TEAM for one in plays):
        raise UserError(f"no scores in {run.path}; run `emads evaluate {run.path} --again`")
    write_summary(run.path, summarise(run, plays, wall_s=wall_s))
    return read_summary(run.path)


def summarise(run: Run, plays: Sequence[StagePlays], *, wall_s: float) -> dict[str, Any]:
    """Return the summary of all plays of a run."""
    changed, signal = _training_facts(run)
    summary = build_summary(
        plays,
        seed=run.config.seed,
        wall_s=wall_s,
        versions={name: version or "not installed" for name, version in find_versions().items()},
        weights_changed=changed,
        signal=signal,
        joint_steps=list_joint_steps(run),
        temperature=run.config.evaluation.temperature,
    )
    cases = [asdict(one) for one in list_shown_cases(run, plays)]
    return summary | {"alarms": alarms_by_stage(run), "cases": cases}


def list_joint_steps(run: Run) -> list[dict[str, float]]:
    """Return the metrics of every step of joint training; none for weights taken from another run."""
    return [{"step": float(row.step), **row.metrics} for row in run.read_metrics("marl")]


def _training_facts(run: Run) -> tuple[dict[str, dict[str, bool]], dict[str, dict[str, float]]]:
    """Return the stages that changed their weights, and the share of groups that had an advantage."""
    changed: dict[str, dict[str, bool]] = {}
    signal: dict[str, dict[str, float]] = {}
    for stage in ("sft", "grpo"):
        markers = {role: stage_marker(run, stage, role) for role in ROLES}
        payloads = {r: run.read_payload(marker) for r, marker in markers.items() if run.is_done(marker)}
        changed[stage] = {role: bool(payload["weights_changed"]) for role, payload in payloads.items()}
        if stage == "grpo":
            signal[stage] = {role: float(payload["signal"]) for role, payload in payloads.items()}
    if run.is_done("marl"):
        payload = run.read_payload("marl")
        changed["marl"], signal["marl"] = payload["weights_changed"], payload["signal"]
    return changed, signal


def print_summary(summary: Mapping[str, Any]) -> None:
    """Print tables and gates of every seed."""
    for one in summary.get("seeds", [summary]):
        if "seeds" in summary:
            print(f"seed {one['seed']}")
        print_tables(summary_tables(one))


def compare_runs(runs: Sequence[Run]) -> dict[str, Any]:
    """Compare runs of one config as seeds; seed_comparison.json and the joint summary go to the first one.

    Raises:
        UserError: runs whose configs differ in more than seeds, name and keys that change no weights.
    """
    first = runs[0].config
    digest = compute_digest(first)
    for run in runs[1:]:
        data = run.config.data.model_copy(update={"seed": first.data.seed})
        same = run.config.model_copy(update={"seed": first.seed, "name": first.name, "data": data})
        if compute_digest(same) != digest:
            raise UserError(
                f"{run.path} has another config than {runs[0].path}: only seeds of one config are compared"
                " together; evaluate them one by one"
            )
    comparison = _compare(runs, same_scenarios=all(run.config.data == first.data for run in runs))
    write_seed_comparison(runs[0].path, comparison)
    summaries = [read_summary(run.path) for run in runs]
    write_summary(runs[0].path, combine_seeds(summaries))
    print_tables(seed_comparison_tables(comparison))
    return comparison


def _compare(runs: Sequence[Run], *, same_scenarios: bool) -> dict[str, Any]:
    plays = {str(run.path): read_plays(run.path) for run in runs}
    return compare_seeds(plays, [run.config.seed for run in runs], same_scenarios=same_scenarios)


def check_run_gates(runs: Sequence[Run], rules: Sequence[GateRule]) -> int:
    """Print the gates of every run; return 0, or 3 where one is missed."""
    comparison = read_seed_comparison(runs[0].path) if len(runs) > 1 else {}
    gates: list[RunGate] = []
    for run in runs:
        numbers = {**read_summary(run.path), "seed_comparison": comparison}
        prefix = f"{run.path.name}: " if len(runs) > 1 else ""
        gates += [replace(one, name=prefix + one.name) for one in check_gate_rules(rules, numbers)]
    print_tables([gate_table([asdict(one) for one in gates])])
    missed = [gate.name for gate in gates if not gate.passed]
    print(f"gates: {'all green' if not missed else 'RED: ' + ', '.join(missed)}")
    return GATE_FAILURE if missed else 0


def list_shown_cases(run: Run, plays: Sequence[StagePlays]) -> list[ChosenCase]:
    """Return the chosen test cases as the team of every stage played them; none before joint training."""
    team = {one.stage: one for one in plays if one.owner == TEAM}
    shown = [team[stage] for stage in SHOWN_STAGES if stage in team]
    if "marl" not in team:
        return []
    mode: Mode = "greedy" if all(one.greedy for one in shown) else "sampled"
    rewards = [one.column("reward", mode) for one in shown]
    config = run.config
    found: list[ChosenCase] = []
    for choice, place in choose_cases(rewards[0], rewards[-1]).items():
        case = team_scenario(config.data, "test", place, test_difficulties(config))
        game = choose_game(config)(case)
        briefs = {role: game.write_report_brief(role) for role in case.seats}
        outcomes = [(one.greedy if mode == "greedy" else one.sampled)[place] for one in shown]
        found.append(
            ChosenCase(
                choice=choice,
                num_cases=len(rewards[0]),
                is_greedy=mode == "greedy",
                plays=[
                    describe_outcome(outcome, briefs=briefs, label=STAGE_TITLES[one.stage])
                    for one, outcome in zip(shown, outcomes, strict=True)
                    if isinstance(outcome, TeamOutcome)
                ],
            )
        )
    return found


def report_runs(paths: Sequence[Path], *, markdown: Path | None = None) -> list[Path]:
    """Write report.html into every run, and the Markdown page where asked for; return what was written.

    Raises:
        UserError: no run, or a run that is not evaluated.
    """
    runs = find_runs(paths)
    written = [write_report(run.path) for run in runs]
    if markdown is not None:
        command = shlex.join(["emads", "report", *map(str, paths), "--markdown", str(markdown)])
        written.append(write_results_page(markdown, [run.path for run in runs], command=command))
    return written

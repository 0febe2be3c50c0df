"""Scores of one run on the sealed test split, and its summary."""

import time
from pathlib import Path
from typing import Any

from emads.commands.evaluation.evaluation_store import (
    forget_scores,
    forget_scores_without_plays,
    store_details,
)
from emads.commands.simulation.episodes_side_by_side import write_episodes_side_by_side
from emads.commands.stage_tasks import (
    baselines_task,
    evaluate_governed_tasks,
    evaluate_role_task,
    evaluate_single_task,
    evaluate_team_task,
    has_pretrained_base,
    perform,
)
from evaluation.scoring.scores import RoleScores, TeamScores, read_scores
from evaluation.summary.joint_table import summary_tables
from evaluation.summary.run_summary import build_summary, read_summary, write_summary
from evaluation.summary.tables import print_tables
from roles.errors import UserError
from roles.registry import ROLES
from roles.team import TEAM_ROLES
from scenarios.team.single import SINGLE
from training.models.weights import stage_marker
from training.roles.alarm_files import alarms_by_stage
from training.runs.provenance import find_versions
from training.runs.run_folder import Run
from training.stages.order import EVALUATED_AFTER, GOVERNED_STAGES, SINGLE_STAGES, TEAM_CONTROLS


def evaluate_run(path: Path, *, again: bool = False) -> dict[str, Any]:
    """Score every finished stage on the sealed test split; write summary.json and return what it holds.

    What is stored is kept, down to single plays; `again` plays everything anew.
    """
    run = Run.open(path)
    forget_scores(run) if again else forget_scores_without_plays(run)
    tasks = [baselines_task(run)]
    for stage, source in EVALUATED_AFTER.items():
        roles = [role for role in ROLES if _is_trained(run, source, role)]
        if stage == "untrained" and not has_pretrained_base(run):
            roles = [role for role in roles if not _is_trained(run, "sft", role)]
        tasks += [evaluate_role_task(run, stage, role, after=()) for role in roles]
        if set(TEAM_ROLES) <= set(roles):
            tasks.append(evaluate_team_task(run, stage, after=()))
    tasks += [
        evaluate_team_task(run, stage, after=())
        for stage in TEAM_CONTROLS
        if all(_is_trained(run, stage, role) for role in TEAM_ROLES)
    ]
    tasks += [
        evaluate_single_task(run, stage, after=())
        for stage in SINGLE_STAGES
        if _is_trained(run, stage, SINGLE)
    ]
    is_whole = {stage: all(_is_trained(run, stage, role) for role in TEAM_ROLES) for stage in GOVERNED_STAGES}
    tasks += evaluate_governed_tasks(run, {stage: () for stage, is_done in is_whole.items() if is_done})
    start = time.monotonic()
    perform(run, tasks, "evaluation")
    write_summary(path, summarise(run, wall_s=add_wall_time(run, time.monotonic() - start)))
    store_details(run)
    if run.is_done("marl"):
        write_episodes_side_by_side(run)
    return read_summary(path)


def summarise(run: Run, *, wall_s: float) -> dict[str, Any]:
    """The summary of all stored scores of a run."""
    role_scores: list[RoleScores] = []
    team_scores: list[TeamScores] = []
    for file in sorted((run.path / "scores").glob("*.jsonl")):
        for record in read_scores(file):
            if isinstance(record, RoleScores):
                role_scores.append(record)
            else:
                team_scores.append(record)
    if not role_scores:
        raise UserError(f"no scores in {run.path}; run `emads evaluate {run.path}` first")
    known = [*ROLES]
    role_scores.sort(key=lambda one: known.index(one.role) if one.role in known else len(known))
    changed, signal = _training_facts(run)
    summary = build_summary(
        role_scores,
        team_scores,
        seed=run.config.seed,
        wall_s=wall_s,
        versions={name: version or "not installed" for name, version in find_versions().items()},
        weights_changed=changed,
        signal=signal,
        joint_steps=list_joint_steps(run),
        temperature=run.config.evaluation.temperature,
    )
    return summary | {"alarms": alarms_by_stage(run)}


def list_joint_steps(run: Run) -> list[dict[str, float]]:
    """The metrics of every step of joint training; none for weights that were taken from another run."""
    return [{"step": float(row.step), **row.metrics} for row in run.read_metrics("marl")]


def print_summary(summary: dict[str, Any]) -> None:
    """Tables and gates of every seed on the terminal."""
    for one in summary.get("seeds", [summary]):
        if "seeds" in summary:
            print(f"seed {one['seed']}")
        print_tables(summary_tables(one))


def add_wall_time(run: Run, seconds: float) -> float:
    """Seconds that the run took in all, these ones included."""
    spent_s = float(run.read_payload("wall")["wall_s"]) if run.is_done("wall") else 0.0
    run.mark_done("wall", {"wall_s": spent_s + seconds})
    return spent_s + seconds


def _training_facts(run: Run) -> tuple[dict[str, dict[str, bool]], dict[str, dict[str, float]]]:
    """The stages that changed their weights, and the share of groups that had an advantage."""
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


def _is_trained(run: Run, stage: str, role: str) -> bool:
    return run.is_done(stage_marker(run, stage, role))

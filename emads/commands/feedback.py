"""`emads train corrections|dpo|kto|reward|ppo`: one role learns from labels, and is evaluated."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from emads.commands.evaluation.evaluation_store import forget_scores_without_plays
from emads.commands.stage_tasks import evaluate_role_task, perform
from evaluation.scoring.scores import FEEDBACK_STAGES
from training.models.weights import stage_marker
from training.runs.run_folder import Run
from training.runs.workers import Task
from training.stages.feedback import (
    prepare_stage,
    train_corrections,
    train_ppo,
    train_preferences,
    train_reward,
)


def train_feedback(
    run: Run,
    stage: str,
    roles: Sequence[str],
    labels: Path | None,
    overrides: Sequence[str],
    *,
    resume: bool = False,
) -> None:
    """Train the roles on their labels; a policy is played on the sealed test scenarios afterwards.

    Raises:
        UserError: no labels, or others than the stage began with.
    """
    for role in roles:
        prepare_stage(run, stage, role, labels, overrides, resume=resume)
    tasks = [_task(run, stage, role) for role in roles]
    if stage in FEEDBACK_STAGES:
        forget_scores_without_plays(run)
        tasks += [evaluate_role_task(run, stage, role, after=(f"{stage}/{role}",)) for role in roles]
    perform(run, tasks, stage)


def read_reward_facts(run: Run, role: str) -> dict[str, Any]:
    """Accuracy of a role's reward model, and its numbers of comparisons."""
    return dict(run.read_payload(stage_marker(run, "reward", role)))


def _task(run: Run, stage: str, role: str) -> Task:
    name = f"{stage}/{role}"
    if stage in ("dpo", "kto"):
        return Task(name=name, call=train_preferences, args=(run.path, stage, role))
    calls = {"corrections": train_corrections, "reward": train_reward, "ppo": train_ppo}
    return Task(name=name, call=calls[stage], args=(run.path, role))

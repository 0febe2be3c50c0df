"""Stages and evaluations of a run as tasks for worker processes, and the order that they need.

base -> sft/ROLE -> grpo/ROLE -> marl;  evaluations run as soon as their weights exist
"""

from collections.abc import Sequence

from emads.commands.evaluation.evaluation_store import (
    evaluate_single,
)
from roles.registry import ROLES
from roles.team import RECONCILER, TEAM_ROLES
from training.models.adapters import list_owners, owner_of
from training.models.base_model import quiet_libraries
from training.runs.run_folder import Run
from training.runs.workers import Task, run_tasks
from training.stages.base import train_base
from training.stages.evaluation import evaluate_baselines, evaluate_role, evaluate_team
from training.stages.grpo import train_grpo
from training.stages.marl import train_marl
from training.stages.sft import train_sft, train_sft_more


def role_tasks(run: Run) -> dict[str, Task]:
    """Every training stage of a run as a task, by name."""
    owners = order_owners(run)
    tasks = [base_task(run)]
    for owner in owners:
        tasks += [sft_task(run, owner), grpo_task(run, owner, after=(f"sft/{owner}",))]
    tasks.append(marl_task(run, after=tuple(f"grpo/{owner}" for owner in owners)))
    return {task.name: task for task in tasks}


def demo_tasks(run: Run, *, controls: bool) -> list[Task]:
    """The whole run as tasks, the critical path first."""
    owners = order_owners(run)
    grpo = tuple(f"grpo/{owner}" for owner in owners)
    tasks = [base_task(run)]
    for owner in owners:
        tasks += [sft_task(run, owner), grpo_task(run, owner, after=(f"sft/{owner}",))]
    tasks.append(marl_task(run, after=grpo))
    tasks.append(baselines_task(run))
    if controls:
        tasks += [sft_more_task(run, owner) for owner in owners]
    for role in ROLES:
        tasks.append(evaluate_role_task(run, "untrained", role, after=("base",)))
        owner = owner_of(run.config.model, role)
        tasks.append(evaluate_role_task(run, "sft", role, after=(f"sft/{owner}",)))
        tasks.append(evaluate_role_task(run, "grpo", role, after=(f"grpo/{owner}",)))
        if controls:
            tasks.append(evaluate_role_task(run, "sft_more", role, after=(f"sft_more/{owner}",)))
    all_sft = tuple(f"sft/{owner}" for owner in owners)
    tasks.append(evaluate_team_task(run, "untrained", after=("base",)))
    tasks.append(evaluate_team_task(run, "sft", after=all_sft))
    tasks.append(evaluate_team_task(run, "grpo", after=grpo))
    tasks.append(evaluate_team_task(run, "marl", after=("marl",)))
    tasks.append(evaluate_single_task(run, after=("marl",)))
    tasks += [evaluate_role_task(run, "marl", role, after=("marl",)) for role in TEAM_ROLES]
    return tasks


def order_owners(run: Run) -> list[str]:
    """Return whose weights are trained, the longest work first: ReconcileGPT reads all reports."""
    return sorted(list_owners(run.config.model), key=lambda owner: owner != RECONCILER)


def perform(run: Run, tasks: Sequence[Task], title: str) -> None:
    run_tasks(
        tasks,
        num_workers=run.config.num_workers,
        num_threads=run.config.threads_per_worker,
        title=title,
        faults=run.faults,
        prepare=quiet_libraries,
    )


def base_task(run: Run) -> Task:
    return Task(name="base", call=train_base, args=(run.path,))


def sft_task(run: Run, role: str) -> Task:
    return Task(
        name=f"sft/{role}",
        call=train_sft,
        args=(run.path, role),
        after=("base",),
        units=run.config.sft.max_steps,
    )


def sft_more_task(run: Run, role: str) -> Task:
    return Task(
        name=f"sft_more/{role}",
        call=train_sft_more,
        args=(run.path, role),
        after=(f"grpo/{role}",),
        units=run.config.sft.max_steps // 2,
    )


def grpo_task(run: Run, role: str, *, after: tuple[str, ...]) -> Task:
    units = 5 * run.config.grpo.max_steps
    return Task(name=f"grpo/{role}", call=train_grpo, args=(run.path, role), after=after, units=units)


def marl_task(run: Run, *, after: tuple[str, ...]) -> Task:
    units = 10 * run.config.marl.max_steps
    return Task(name="marl", call=train_marl, args=(run.path,), after=after, units=units)


def baselines_task(run: Run) -> Task:
    return Task(name="evaluate/baselines", call=evaluate_baselines, args=(run.path,), units=10)


def evaluate_role_task(run: Run, stage: str, role: str, *, after: tuple[str, ...]) -> Task:
    return Task(
        name=f"evaluate/{stage}/{role}",
        call=evaluate_role,
        args=(run.path, stage, role),
        after=after,
        units=20,
    )


def evaluate_single_task(run: Run, *, after: tuple[str, ...]) -> Task:
    return Task(name="evaluate/single", call=evaluate_single, args=(run.path,), after=after, units=20)


def evaluate_team_task(run: Run, stage: str, *, after: tuple[str, ...]) -> Task:
    return Task(
        name=f"evaluate/{stage}/team",
        call=evaluate_team,
        args=(run.path, stage),
        after=after,
        units=40,
    )

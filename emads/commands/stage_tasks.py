"""Stages and evaluations of a run as tasks for worker processes, and the order that they need.

base -> sft/ROLE -> grpo/ROLE -> marl;  evaluations run as soon as their weights exist
controls: sft/ROLE -> sft_more/ROLE, sft_own/ROLE;  grpo/ROLE -> sft_instead, grpo_instead, sft_best_habit;
base -> single_sft -> single_grpo
"""

from collections.abc import Mapping, Sequence
from functools import partial

from roles.registry import ROLES
from roles.team import RECONCILER, TEAM_ROLES
from scenarios.team.single import SINGLE
from training.models.adapters import list_owners, owner_of
from training.models.base_model import quiet_libraries
from training.runs.run_folder import Run
from training.runs.workers import Task, run_tasks
from training.stages.base import train_base
from training.stages.controls import (
    count_grpo_steps,
    count_sft_steps,
    count_single_grpo_steps,
    evaluate_single,
    list_control_owners,
    train_grpo_instead,
    train_sft_best_habit,
    train_sft_instead,
    train_single_grpo,
    train_single_sft,
)
from training.stages.evaluation import (
    evaluate_baselines,
    evaluate_governed,
    evaluate_role,
    evaluate_team,
)
from training.stages.grpo import train_grpo
from training.stages.marl import train_marl
from training.stages.on_ranks import count_joint_ranks, count_role_ranks, train_on_ranks
from training.stages.order import GOVERNED, GOVERNED_STAGES, ROLE_CONTROLS, SINGLE_STAGES, TEAM_CONTROLS
from training.stages.own_answers import train_sft_own
from training.stages.sft import count_control_steps, start_of, train_sft, train_sft_more


def role_tasks(run: Run) -> dict[str, Task]:
    """Every training stage of a run as a task, by name."""
    owners = order_owners(run)
    tasks = [base_task(run)]
    for owner in owners:
        tasks += [sft_task(run, owner), grpo_task(run, owner, after=(f"sft/{owner}",))]
    tasks.append(marl_task(run, after=tuple(f"grpo/{owner}" for owner in owners)))
    return {task.name: task for task in tasks}


def demo_tasks(run: Run) -> list[Task]:
    """The whole run without its controls as tasks, the critical path first."""
    owners = order_owners(run)
    grpo = tuple(f"grpo/{owner}" for owner in owners)
    tasks = [base_task(run)]
    for owner in owners:
        tasks += [sft_task(run, owner), grpo_task(run, owner, after=(f"sft/{owner}",))]
    tasks.append(marl_task(run, after=grpo))
    tasks.append(baselines_task(run))
    for role in ROLES:
        if has_pretrained_base(run):
            tasks.append(evaluate_role_task(run, "untrained", role, after=("base",)))
        owner = owner_of(run.config.model, role)
        tasks.append(evaluate_role_task(run, "sft", role, after=(f"sft/{owner}",)))
        tasks.append(evaluate_role_task(run, "grpo", role, after=(f"grpo/{owner}",)))
    all_sft = tuple(f"sft/{owner}" for owner in owners)
    if has_pretrained_base(run):
        tasks.append(evaluate_team_task(run, "untrained", after=("base",)))
    tasks.append(evaluate_team_task(run, "sft", after=all_sft))
    tasks.append(evaluate_team_task(run, "grpo", after=grpo))
    tasks.append(evaluate_team_task(run, "marl", after=("marl",)))
    tasks += [evaluate_role_task(run, "marl", role, after=("marl",)) for role in TEAM_ROLES]
    return tasks + evaluate_governed_tasks(run, {"grpo": grpo, "marl": ("marl",)})


def control_tasks(run: Run) -> list[Task]:
    """The controls of a run whose own stages are done, the longest chain first."""
    config, owners = run.config, list_control_owners(run.config)
    single_steps = {"single_sft": config.sft.max_steps, "single_grpo": 5 * count_single_grpo_steps(config)}
    calls = {"single_sft": train_single_sft, "single_grpo": train_single_grpo}
    tasks = [
        Task(
            name=f"{stage}/{SINGLE}",
            call=calls[stage],
            args=(run.path,),
            after=() if stage == SINGLE_STAGES[0] else (f"{SINGLE_STAGES[0]}/{SINGLE}",),
            units=single_steps[stage],
        )
        for stage in SINGLE_STAGES
    ]
    trained = {
        "sft_instead": (train_sft_instead, count_sft_steps, 1),
        "grpo_instead": (train_grpo_instead, count_grpo_steps, 5),
        "sft_best_habit": (train_sft_best_habit, count_sft_steps, 1),
    }
    for stage in TEAM_CONTROLS:
        call, count_steps, units = trained[stage]
        tasks += [
            Task(
                name=f"{stage}/{owner}",
                call=call,
                args=(run.path, owner),
                units=units * count_steps(config, owner),
            )
            for owner in owners
        ]
    tasks += [
        sft_control_task(run, stage, owner) for stage in ROLE_CONTROLS for owner in list_owners(config.model)
    ]
    tasks += [evaluate_single_task(run, stage, after=(f"{stage}/{SINGLE}",)) for stage in SINGLE_STAGES]
    tasks += [
        evaluate_team_task(run, stage, after=tuple(f"{stage}/{owner}" for owner in owners))
        for stage in TEAM_CONTROLS
    ]
    for role in ROLES:
        owner = owner_of(config.model, role)
        tasks += [
            evaluate_role_task(run, stage, role, after=(f"{stage}/{owner}",)) for stage in ROLE_CONTROLS
        ]
    return tasks


def has_pretrained_base(run: Run) -> bool:
    """Return whether the untrained model is worth playing: random weights have nothing to show."""
    return run.config.model.preset != "tiny"


def order_owners(run: Run) -> list[str]:
    """Return whose weights are trained, the longest work first: ReconcileGPT reads all reports.

    A role from whose weights the others start is before them.
    """
    first = (run.config.sft.transfer_from or RECONCILER, RECONCILER)
    return sorted(
        list_owners(run.config.model), key=lambda owner: first.index(owner) if owner in first else len(first)
    )


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
    stage, other = start_of(run.config, "sft", role)
    return Task(
        name=f"sft/{role}",
        call=partial(train_on_ranks, train_sft),
        args=(run.path, role),
        after=("base",) if other == role else (f"{stage}/{other}",),
        units=run.config.sft.steps_of(role),
        ranks=count_role_ranks(run.config),
    )


def sft_control_task(run: Run, stage: str, owner: str, *, after: tuple[str, ...] = ()) -> Task:
    return Task(
        name=f"{stage}/{owner}",
        call={"sft_more": train_sft_more, "sft_own": train_sft_own}[stage],
        args=(run.path, owner),
        after=after,
        units=count_control_steps(run.config, owner),
    )


def grpo_task(run: Run, role: str, *, after: tuple[str, ...]) -> Task:
    units = 5 * run.config.grpo.max_steps
    return Task(
        name=f"grpo/{role}",
        call=partial(train_on_ranks, train_grpo),
        args=(run.path, role),
        after=after,
        units=units,
        ranks=count_role_ranks(run.config),
    )


def marl_task(run: Run, *, after: tuple[str, ...], ends_here: bool = False) -> Task:
    units = 10 * run.config.marl.max_steps
    if ends_here:
        return Task(
            name="marl", call=partial(train_marl, ends_here=True), args=(run.path,), after=after, units=units
        )
    return Task(
        name="marl",
        call=partial(train_on_ranks, train_marl),
        args=(run.path,),
        after=after,
        units=units,
        ranks=count_joint_ranks(run.config),
    )


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


def evaluate_single_task(run: Run, stage: str, *, after: tuple[str, ...]) -> Task:
    return Task(
        name=f"evaluate/{stage}/team",
        call=evaluate_single,
        args=(run.path, stage),
        after=after,
        units=20,
    )


def evaluate_governed_tasks(run: Run, after: Mapping[str, tuple[str, ...]]) -> list[Task]:
    """Evaluations of these stages in governed episodes; none where joint training plays none.

    `after`: by stage, the tasks that train it.
    """
    if run.config.marl.protocol != "full":
        return []
    return [
        Task(
            name=f"evaluate/{stage}{GOVERNED}/team",
            call=evaluate_governed,
            args=(run.path, stage),
            after=after[stage],
            units=40,
        )
        for stage in GOVERNED_STAGES
        if stage in after
    ]


def evaluate_team_task(run: Run, stage: str, *, after: tuple[str, ...]) -> Task:
    return Task(
        name=f"evaluate/{stage}/team",
        call=evaluate_team,
        args=(run.path, stage),
        after=after,
        units=40,
    )

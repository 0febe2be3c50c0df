"""Stages and evaluations of a run as tasks for worker processes, in the order that they need.

base -> sft/ROLE -> grpo/ROLE -> marl -> review queue;  evaluations run as soon as their weights exist
controls: sft/ROLE -> sft_more/ROLE, sft_own/ROLE;  grpo/ROLE -> sft_instead, grpo_instead, sft_best_habit;
base -> single_sft -> single_grpo
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from emads.commands.review_queue import REVIEW, queue_cases
from evaluation.scoring.outcomes import FEEDBACK_STAGES
from roles.errors import UserError
from roles.registry import ROLES
from roles.team import RECONCILER, TEAM_ROLES
from scenarios.team.single import SINGLE
from training.models.adapters import list_owners, owner_of, owners_of
from training.models.base_model import quiet_libraries
from training.models.weights import stage_marker
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
from training.stages.feedback import (
    prepare_stage,
    train_corrections,
    train_ppo,
    train_preferences,
    train_reward,
)
from training.stages.grpo import train_grpo
from training.stages.marl import train_marl
from training.stages.on_ranks import count_joint_ranks, count_role_ranks, train_on_ranks
from training.stages.order import GOVERNED, GOVERNED_STAGES, ROLE_CONTROLS, SINGLE_STAGES, TEAM_CONTROLS
from training.stages.own_answers import train_sft_own
from training.stages.sft import count_control_steps, start_of, train_sft, train_sft_more
from training.stages.take_over import num_joint_steps, take_over

# Shares of the progress bar, in steps of SFT by a demo's seconds on two cores; and what the tasks report.
GRPO_STEP, JOINT_STEP, ROLE_CASE, TEAM_CASE, GOVERNED_CASE = 4, 21, 0.032, 0.2, 0.4
GRPO_REPORT, JOINT_REPORT, ROLE_REPORT, TEAM_REPORT = 5, 10, 20, 40
FEEDBACK_UNITS = 20


def perform(run: Run, tasks: Sequence[Task], title: str) -> None:
    """Perform tasks of a run in its worker processes; those that are done are skipped."""
    run_tasks(
        tasks,
        num_workers=run.config.num_workers,
        num_threads=run.config.threads_per_worker,
        title=title,
        faults=run.faults,
        prepare=quiet_libraries,
    )


def train_stage(
    run: Run, stage: str, roles: Sequence[str] = tuple(ROLES), *, ends_here: bool = False
) -> None:
    """Train one stage, base, sft, grpo or marl; sft and grpo train the given roles, marl the whole team.

    SFT of a role that starts from another role's weights trains that one first. With `ends_here` the newest
    checkpoint of marl becomes its result.

    Raises:
        UserError: a role lacks the weights of the stage before.
    """
    model = run.config.model
    if stage == "base":
        perform(run, [base_task(run)], "base")
    elif stage == "sft":
        first = run.config.sft.transfer_from
        owners = owners_of(model, (first, *roles) if first else roles)
        perform(run, [base_task(run), *(sft_task(run, owner) for owner in owners)], "SFT")
    elif stage == "grpo":
        _require(run, "sft", roles)
        perform(run, [grpo_task(run, owner) for owner in owners_of(model, roles)], "GRPO")
    elif stage == "marl":
        _require(run, "grpo", TEAM_ROLES)
        perform(run, [marl_task(run, ends_here=ends_here)], "MARL")
        if ends_here:
            print(f"joint training ended after step {num_joint_steps(run)} of {run.config.marl.max_steps}")
    else:
        raise ValueError(f"no stage {stage!r}")


def _require(run: Run, stage: str, roles: Sequence[str]) -> None:
    for role in roles:
        if not run.is_done(stage_marker(run, stage, role)):
            raise UserError(
                f"role {role!r} has no {stage} weights in {run.path}; first `emads train {stage} {run.path}`"
            )


def take_stages(run: Run, donor: Path | None) -> None:
    """Take over what another run did under equal settings, and say what; None takes nothing.

    Raises:
        UserError: no run there, the run itself, or one of another seed, model or data.
    """
    if donor is None:
        return
    if donor.resolve() == run.path.resolve():
        raise UserError(f"--take-from {donor} is the run itself; name another run")
    taken = take_over(Run.open(donor), run)
    print(f"taken over from {donor}: {', '.join(taken) or 'nothing that is not done here'}")


def train_on_labels(
    run: Run,
    stage: str,
    roles: Sequence[str],
    labels: Path | None,
    overrides: Sequence[str],
    *,
    resume: bool = False,
) -> None:
    """Train roles on labels: corrections, dpo, kto, reward or ppo; a policy is then played on sealed cases.

    Raises:
        UserError: no labels, or others than the stage began with.
    """
    calls: dict[str, Callable[..., Any]] = {
        "corrections": train_corrections,
        "dpo": partial(train_preferences, stage="dpo"),
        "kto": partial(train_preferences, stage="kto"),
        "reward": train_reward,
        "ppo": train_ppo,
    }
    for role in roles:
        prepare_stage(run, stage, role, labels, overrides, resume=resume)
    tasks = [
        Task(
            name=f"{stage}/{role}",
            call=partial(calls[stage], role=role),
            args=(run.path,),
            units=FEEDBACK_UNITS,
        )
        for role in roles
    ]
    if stage in FEEDBACK_STAGES:
        tasks += [evaluate_role_task(run, stage, role, after=(f"{stage}/{role}",)) for role in roles]
    perform(run, tasks, stage)


def run_schedule(run: Run) -> list[str]:
    """Train all stages of a run that are not done yet, then queue cases for people; say what it took.

    Raises:
        UserError: a stage failed; the run can be resumed.
    """
    tasks = list(role_tasks(run).values())
    if run.config.review.num_scenarios:
        units = TEAM_CASE * run.config.review.num_scenarios
        tasks.append(Task(name=REVIEW, call=queue_cases, args=(run.path,), after=("marl",), units=units))
    was_done = sum(run.is_done(task.name) for task in tasks)
    start = time.monotonic()
    try:
        perform(run, tasks, "schedule")
    finally:
        seconds = add_wall_time(run, time.monotonic() - start)
    price = run.config.price_per_hour
    cost = f", {price * seconds / 3600:.2f} at {price:g} per hour" if price else ""
    lines = [
        f"{len(tasks)} stages are done, {was_done} of them before this call;"
        f" so far {seconds / 60:.1f} min{cost}"
    ]
    if run.config.review.num_scenarios:
        count = run.read_payload(REVIEW)["num_cases"]
        lines.append(f"{count} uncertain cases wait for people: emads review {run.path}")
    return lines


def add_wall_time(run: Run, seconds: float) -> float:
    """Return the seconds that the run took in all, these ones included."""
    spent_s = float(run.read_payload("wall")["wall_s"]) if run.is_done("wall") else 0.0
    run.mark_done("wall", {"wall_s": spent_s + seconds})
    return spent_s + seconds


def role_tasks(run: Run) -> dict[str, Task]:
    """Every training stage of a run as a task, by name, the critical path first."""
    owners = order_owners(run)
    tasks = [base_task(run)]
    for owner in owners:
        tasks += [sft_task(run, owner), grpo_task(run, owner, after=(f"sft/{owner}",))]
    tasks.append(marl_task(run, after=tuple(f"grpo/{owner}" for owner in owners)))
    return {task.name: task for task in tasks}


def demo_tasks(run: Run) -> list[Task]:
    """The whole run without its controls as tasks, the critical path first."""
    owners = order_owners(run)
    of_owners = {stage: tuple(f"{stage}/{owner}" for owner in owners) for stage in ("sft", "grpo")}
    after = {"untrained": ("base",), **of_owners, "marl": ("marl",)}
    played = list(after) if has_pretrained_base(run) else [*of_owners, "marl"]
    tasks = [*role_tasks(run).values(), baselines_task(run)]
    for role in ROLES:
        own = {stage: (f"{stage}/{owner_of(run.config.model, role)}",) for stage in of_owners}
        tasks += [
            evaluate_role_task(run, stage, role, after=own.get(stage, after[stage]))
            for stage in played
            if stage != "marl" or role in TEAM_ROLES
        ]
    tasks += [evaluate_team_task(run, stage, after=after[stage]) for stage in played]
    return tasks + evaluate_governed_tasks(run, after)


def control_tasks(run: Run) -> list[Task]:
    """The controls of a run whose own stages are done, the longest chain first."""
    config, owners = run.config, list_control_owners(run.config)
    first, second = SINGLE_STAGES
    tasks = [
        Task(name=f"{first}/{SINGLE}", call=train_single_sft, args=(run.path,), units=config.sft.max_steps),
        Task(
            name=f"{second}/{SINGLE}",
            call=train_single_grpo,
            args=(run.path,),
            after=(f"{first}/{SINGLE}",),
            units=GRPO_STEP * count_single_grpo_steps(config),
            reports=GRPO_REPORT * count_single_grpo_steps(config),
        ),
    ]
    trained = {
        "sft_instead": (train_sft_instead, count_sft_steps, 1),
        "grpo_instead": (train_grpo_instead, count_grpo_steps, GRPO_STEP),
        "sft_best_habit": (train_sft_best_habit, count_sft_steps, 1),
        "sft_more": (train_sft_more, count_control_steps, 1),
        "sft_own": (train_sft_own, count_control_steps, 1),
    }
    for stage in (*TEAM_CONTROLS, *ROLE_CONTROLS):
        call, count_steps, units = trained[stage]
        tasks += [
            Task(
                name=f"{stage}/{owner}",
                call=call,
                args=(run.path, owner),
                units=units * count_steps(config, owner),
                reports=(1 if units == 1 else GRPO_REPORT) * count_steps(config, owner),
            )
            for owner in (owners if stage in TEAM_CONTROLS else list_owners(config.model))
        ]
    tasks += [
        evaluate_team_task(run, stage, after=tuple(f"{stage}/{owner}" for owner in owners))
        for stage in TEAM_CONTROLS
    ]
    tasks += [evaluate_single_task(run, stage, after=(f"{stage}/{SINGLE}",)) for stage in SINGLE_STAGES]
    return tasks + [
        evaluate_role_task(run, stage, role, after=(f"{stage}/{owner_of(config.model, role)}",))
        for role in ROLES
        for stage in ROLE_CONTROLS
    ]


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


def base_task(run: Run) -> Task:
    return Task(name="base", call=train_base, args=(run.path,))


def sft_task(run: Run, role: str) -> Task:
    stage, other = start_of(run.config, "sft", role)
    return Task(
        name=f"sft/{role}",
        call=partial(train_on_ranks, train_sft),
        args=(run.path, role),
        after=("base",) if other == role else (f"{stage}/{other}",),
        units=run.config.sft.max_steps,
        ranks=count_role_ranks(run.config),
    )


def grpo_task(run: Run, role: str, *, after: tuple[str, ...] = ()) -> Task:
    return Task(
        name=f"grpo/{role}",
        call=partial(train_on_ranks, train_grpo),
        args=(run.path, role),
        after=after,
        units=GRPO_STEP * run.config.grpo.max_steps,
        reports=GRPO_REPORT * run.config.grpo.max_steps,
        ranks=count_role_ranks(run.config),
    )


def marl_task(run: Run, *, after: tuple[str, ...] = (), ends_here: bool = False) -> Task:
    return Task(
        name="marl",
        call=partial(train_marl, ends_here=True) if ends_here else partial(train_on_ranks, train_marl),
        args=(run.path,),
        after=after,
        units=JOINT_STEP * run.config.marl.max_steps,
        reports=JOINT_REPORT * run.config.marl.max_steps,
        ranks=1 if ends_here else count_joint_ranks(run.config),
    )


def baselines_task(run: Run) -> Task:
    return Task(name="evaluate/baselines", call=evaluate_baselines, args=(run.path,), units=10)


def evaluate_role_task(run: Run, stage: str, role: str, *, after: tuple[str, ...] = ()) -> Task:
    return _evaluate_task(run, evaluate_role, f"{stage}/{role}", (stage, role), after)


def evaluate_team_task(run: Run, stage: str, *, after: tuple[str, ...] = ()) -> Task:
    return _evaluate_task(run, evaluate_team, f"{stage}/team", (stage,), after)


def evaluate_single_task(run: Run, stage: str, *, after: tuple[str, ...] = ()) -> Task:
    return _evaluate_task(run, evaluate_single, f"{stage}/team", (stage,), after)


def _evaluate_task(
    run: Run, call: Callable[..., Any], name: str, args: tuple[str, ...], after: tuple[str, ...]
) -> Task:
    units, reports = {
        evaluate_role: (ROLE_CASE * run.config.evaluation.num_role_scenarios, ROLE_REPORT),
        evaluate_team: (TEAM_CASE * run.config.evaluation.num_team_scenarios, TEAM_REPORT),
        evaluate_single: (ROLE_CASE * run.config.evaluation.num_team_scenarios, ROLE_REPORT),
        evaluate_governed: (GOVERNED_CASE * run.config.evaluation.num_team_scenarios, TEAM_REPORT),
    }[call]
    name = f"evaluate/{name}"
    return Task(name=name, call=call, args=(run.path, *args), after=after, units=units, reports=reports)


def evaluate_governed_tasks(run: Run, after: Mapping[str, tuple[str, ...]]) -> list[Task]:
    """Evaluations of these stages in governed episodes; none where joint training plays none.

    `after`: by stage, the tasks that train it.
    """
    if run.config.marl.protocol != "full":
        return []
    return [
        _evaluate_task(run, evaluate_governed, f"{stage}{GOVERNED}/team", (stage,), after[stage])
        for stage in GOVERNED_STAGES
        if stage in after
    ]

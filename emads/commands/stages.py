"""Stages (training/stages/table.py) and evaluations of a run as tasks for worker processes.

A task waits for those that make the weights it starts from, as far as these are to be performed with it.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from emads.commands.review import REVIEW, queue_cases
from evaluation.scoring.outcomes import FEEDBACK_STAGES, TEAM
from roles.errors import UserError
from roles.registry import ROLES
from roles.team import RECONCILER, TEAM_ROLES
from training.models.adapters import list_owners, owner_of, owners_of
from training.models.base_model import quiet_libraries
from training.models.weights import stage_marker
from training.runs.run_folder import Run
from training.runs.workers import Task, run_tasks
from training.stages.controls import evaluate_single
from training.stages.evaluation import (
    GOVERNED,
    GOVERNED_STAGES,
    UNTRAINED,
    evaluate_baselines,
    evaluate_governed,
    evaluate_role,
    evaluate_team,
    weights_of,
)
from training.stages.feedback import prepare_stage
from training.stages.on_ranks import count_ranks, train_on_ranks
from training.stages.sft import owner_of_start
from training.stages.table import (
    STAGES,
    list_stage_owners,
    list_stages,
    num_joint_steps,
    take_over,
    train_stage,
)

# Of an evaluated case, in steps of SFT by a demo's seconds on two cores: its share of the progress bar.
ROLE_CASE, TEAM_CASE, GOVERNED_CASE = 0.032, 0.2, 0.4
ROLE_REPORT, TEAM_REPORT = 20, 40  # what an evaluation reports


def perform(run: Run, tasks: Sequence[Task], title: str, *, num_workers: int | None = None) -> None:
    """Perform tasks of a run in its worker processes; those that are done are skipped.

    What a task waits for and is not among them is done already. `num_workers`: in place of the config's.
    """
    names = {task.name for task in tasks}
    run_tasks(
        [replace(task, after=tuple(name for name in task.after if name in names)) for task in tasks],
        num_workers=run.config.num_workers if num_workers is None else num_workers,
        num_threads=run.config.threads_per_worker,
        title=title,
        prepare=quiet_libraries,
    )


def train_stages(
    run: Run, stage: str, roles: Sequence[str] = tuple(ROLES), *, ends_here: bool = False
) -> None:
    """Train one stage, base, sft, grpo or marl; sft and grpo train the given roles, marl the whole team.

    SFT of a role that starts from another role's weights trains that one first. With `ends_here` the newest
    checkpoint of marl becomes its result.

    Raises:
        UserError: a role lacks the weights of the stage before.
    """
    owners, tasks = owners_of(run.config.model, roles), [stage_task(run, "base")]
    if stage == "sft":
        first = run.config.sft.transfer_from
        tasks += [stage_task(run, stage, one) for one in dict.fromkeys((first, *owners) if first else owners)]
    elif stage == "grpo":
        _require(run, "sft", roles)
        tasks += [stage_task(run, stage, owner) for owner in owners]
    elif stage == "marl":
        _require(run, "grpo", TEAM_ROLES)
        tasks.append(stage_task(run, stage))
        if ends_here:
            tasks[-1] = replace(tasks[-1], call=partial(train_stage, ends_here=True), ranks=1)
    elif stage != "base":
        raise ValueError(f"no stage {stage!r}")
    perform(run, tasks, stage)
    if ends_here:
        print(f"joint training ended after step {num_joint_steps(run)} of {run.config.marl.max_steps}")


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
    """Train roles on labels: corrections, dpo, reward or ppo; a policy is then played on sealed cases.

    Raises:
        UserError: no labels, or others than the stage began with.
    """
    if len(owners_of(run.config.model, roles)) < len(roles):
        raise UserError(f"all roles of {run.path} share weights, which learn one role's labels: give --role")
    for role in roles:
        prepare_stage(run, stage, role, labels, overrides, resume=resume)
    tasks = [stage_task(run, stage, role) for role in roles]
    if stage in FEEDBACK_STAGES:
        tasks += [replace(evaluate_task(run, stage, role), after=(f"{stage}/{role}",)) for role in roles]
    perform(run, tasks, stage)


def run_schedule(run: Run) -> list[str]:
    """Train all stages of a run that are not done yet, then queue cases for people; say what it took.

    Raises:
        UserError: a stage failed; the run can be resumed.
    """
    tasks = schedule_tasks(run)
    if run.config.review.num_scenarios:
        units = TEAM_CASE * run.config.review.num_scenarios
        tasks.append(Task(name=REVIEW, call=queue_cases, args=(run.path,), after=("marl",), units=units))
    was_done = sum(run.is_done(task.name) for task in tasks)
    seconds = perform_timed(run, tasks, "schedule")
    lines = [
        f"{len(tasks)} stages are done, {was_done} of them before this call; so far {seconds / 60:.1f} min"
    ]
    if run.config.review.num_scenarios:
        count = run.read_payload(REVIEW)["num_cases"]
        lines.append(f"{count} uncertain cases wait for people: emads review {run.path}")
    return lines


def perform_timed(run: Run, tasks: Sequence[Task], title: str) -> float:
    """Perform tasks as `perform`; return the seconds that the run took in all, these ones included."""
    spent_s = float(run.read_payload("wall")["wall_s"]) if run.is_done("wall") else 0.0
    start = time.monotonic()
    try:
        perform(run, tasks, title)
    finally:
        spent_s += time.monotonic() - start
        run.mark_done("wall", {"wall_s": spent_s})
    return spent_s


def schedule_tasks(run: Run) -> list[Task]:
    """Every stage of a run's schedule as a task, the critical path first."""
    tasks = [stage_task(run, "base")]
    for owner in order_owners(run):
        tasks += [stage_task(run, "sft", owner), stage_task(run, "grpo", owner)]
    return [*tasks, stage_task(run, "marl")]


def demo_tasks(run: Run) -> list[Task]:
    """The whole run without its controls as tasks, the critical path first."""
    played = [*([UNTRAINED] if has_pretrained_base(run) else []), "sft", "grpo", "marl"]
    tasks = [*schedule_tasks(run), baselines_task(run)]
    for role in ROLES:
        tasks += [evaluate_task(run, one, role) for one in played if one != "marl" or role in TEAM_ROLES]
    return tasks + [evaluate_task(run, one) for one in played] + governed_tasks(run)


def control_tasks(run: Run) -> list[Task]:
    """The controls of a run whose own stages are done, the longest chain first."""
    names = sorted(
        list_stages("team_control", "role_control"), key=lambda name: STAGES[name].owners != "single"
    )
    tasks = [stage_task(run, name, owner) for name in names for owner in list_stage_owners(run.config, name)]
    tasks += [evaluate_task(run, name) for name in list_stages("team_control")]
    return tasks + [evaluate_task(run, name, role) for role in ROLES for name in list_stages("role_control")]


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


def stage_task(run: Run, name: str, owner: str | None = None) -> Task:
    """A stage of one owner; None: of the whole run."""
    stage, config = STAGES[name], run.config
    count = stage.count_steps(config, owner or "")
    other = owner_of_start(config, owner) if name == "sft" and owner else None
    return Task(
        name=f"{name}/{owner}" if owner else name,
        call=train_on_ranks,
        args=(run.path, name, owner),
        after=(f"sft/{other}",) if other else _list_makers(run, stage.source, owner),
        units=stage.step_units * count,
        reports=stage.step_reports * count,
        ranks=count_ranks(config, name),
    )


def _list_makers(run: Run, stage: str, owner: str | None) -> tuple[str, ...]:
    """The tasks that make a stage's weights of one owner; None: of all owners."""
    if not stage:
        return ()
    owners = [one for one in list_stage_owners(run.config, stage) if owner is None or one in (None, owner)]
    return tuple(f"{stage}/{one}" if one else stage for one in owners)


def baselines_task(run: Run) -> Task:
    return Task(name="evaluate/baselines", call=evaluate_baselines, args=(run.path,), units=10)


def evaluate_task(run: Run, title: str, role: str | None = None) -> Task:
    """The sealed plays of a stage by a role alone; None: by the team, or by the agent in place of it."""
    evaluation, stage = run.config.evaluation, weights_of(title)
    args: tuple[str, ...] = (title,) if role is None else (title, role)
    call: Callable[..., None] = evaluate_role
    count, case_units, reports = evaluation.num_role_scenarios, ROLE_CASE, ROLE_REPORT
    if role is None:
        call, count = evaluate_single, evaluation.num_team_scenarios
    if role is None and STAGES[stage].owners != "single":
        call, case_units, reports = evaluate_team, TEAM_CASE, TEAM_REPORT
    return Task(
        name=f"evaluate/{title}/{role or TEAM}",
        call=call,
        args=(run.path, *args),
        after=_list_makers(run, stage, role and owner_of(run.config.model, role)),
        units=case_units * count,
        reports=reports,
    )


def governed_tasks(run: Run, stages: Sequence[str] = GOVERNED_STAGES) -> list[Task]:
    """Evaluations of these stages in governed episodes; none where joint training plays none."""
    if run.config.marl.protocol != "full":
        return []
    return [
        Task(
            name=f"evaluate/{stage}{GOVERNED}/{TEAM}",
            call=evaluate_governed,
            args=(run.path, stage),
            after=_list_makers(run, stage, None),
            units=GOVERNED_CASE * run.config.evaluation.num_team_scenarios,
            reports=TEAM_REPORT,
        )
        for stage in stages
    ]

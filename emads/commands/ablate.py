"""`emads ablate`: every cell of a plan is an ordinary run; cells share stages in which they do not differ.

OUT/NAME/CELL/seed-N    a run folder each
OUT/NAME/ablation.json  the measured table;  results.md and plot.svg beside it

A call goes on where an earlier one was killed. Weights and scores of a stage whose config is equal are taken
over from any finished run under OUT.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from emads.commands.ablation_plan import (
    STAGE_ORDER,
    AblationPlan,
    Cell,
    configure,
    list_cells,
    read_plan,
)
from emads.commands.evaluation.evaluate_run import list_joint_steps
from evaluation.comparison.ablations import (
    AblationRow,
    ablation_table,
    best_low,
    measure_cell,
    write_ablation,
)
from evaluation.report.charts import plot_cells
from evaluation.summary.run_summary import describe_validation
from evaluation.summary.tables import print_tables
from roles.registry import ROLES
from training.models.base_model import quiet_libraries
from training.models.weights import BASE, is_finished, stage_marker
from training.runs.run_folder import Run
from training.runs.workers import Task, run_tasks
from training.stages.base import train_base
from training.stages.evaluation import evaluate_role, evaluate_team
from training.stages.grpo import train_grpo
from training.stages.marl import train_marl
from training.stages.order import ROLE_CONTROLS
from training.stages.own_answers import train_sft_own
from training.stages.sft import count_control_steps, train_sft, train_sft_more
from training.stages.take_over import copy_scores, copy_stage, prefix_digest

DEFAULT_WORKERS = 2


def ablate(path: Path, out: Path, *, workers: int = DEFAULT_WORKERS) -> Path:
    """Run every cell of the plan that is not done yet; returns the folder of the results.

    Raises:
        UserError: a wrong plan, or a folder that holds other runs.
    """
    plan = read_plan(path)
    folder = out / plan.name
    deadline = None if plan.max_minutes is None else time.time() + 60 * plan.max_minutes
    cells, stopped = list_cells(plan), list[str]()
    together = [plan.seeds[:1], plan.seeds[1:]] if plan.stop_hopeless else [plan.seeds]
    for number, seeds in enumerate(together):
        open_cells = [cell for cell in cells if cell.name not in stopped]
        tasks = [
            task
            for seed in seeds
            for task in _list_tasks(plan, folder, open_cells, seed, str(path), deadline)
        ]
        if tasks:
            run_tasks(tasks, num_workers=workers, num_threads=1, title=plan.name, prepare=quiet_libraries)
        if plan.stop_hopeless and number == 0:
            stopped = _find_hopeless(plan, folder, cells)
    rows = [_measure(plan, folder, cell, stopped) for cell in cells]
    title = plan.question or plan.name
    command = f"emads ablate --config {path}"
    write_ablation(folder, plan.name, plan.question, rows, command=command, plot=plot_cells(title, rows))
    print_tables([ablation_table(title, rows)])
    print(f"results: {folder / 'results.md'}")
    return folder


def _open(plan: AblationPlan, folder: Path, cell: Cell, seed: int, source: str) -> Run:
    return Run.create(folder / cell.slug / f"seed-{seed}", configure(plan, cell, seed, source))


def _list_tasks(
    plan: AblationPlan, folder: Path, cells: Sequence[Cell], seed: int, source: str, deadline: float | None
) -> list[Task]:
    """Stage by stage for each cell of a seed; a stage that an earlier cell trains alike waits for it."""
    tasks: list[Task] = []
    first: dict[str, str] = {}
    for cell in cells:
        run = _open(plan, folder, cell, seed, source)
        before: tuple[str, ...] = ()
        for stage in (BASE, *(one for one in STAGE_ORDER if one in plan.stages)):
            name = f"{cell.slug}/{seed}/{stage}"
            donor = first.setdefault(prefix_digest(run.config, stage), name)
            after = (*before, *([donor] if donor != name else []))
            roles = plan.roles or tuple(ROLES)
            call = (folder.parent, run.path, stage, roles, deadline)
            units = _count_units(run, stage, roles)
            tasks.append(Task(name=name, call=run_cell_stage, args=call, after=after, units=units))
            before = (name,)
    return tasks


def _count_units(run: Run, stage: str, roles: Sequence[str]) -> int:
    """A stage's share of the progress bar: what its steps and evaluations report."""
    config, num_roles = run.config, len(roles)
    control = sum(count_control_steps(config, role) for role in roles)
    steps = {
        "sft": sum(config.sft.steps_of(role) for role in roles),
        "sft_more": control,
        "sft_own": control,
        "grpo": 5 * sum(config.grpo.steps_of(role) for role in roles),
        "marl": 10 * config.marl.max_steps + 40,
    }
    return 1 if stage == BASE else steps[stage] + 20 * num_roles


def run_cell_stage(out: Path, path: Path, stage: str, roles: Sequence[str], deadline: float | None) -> None:
    """Train and score one stage of a cell, or take it over from a run that is alike; late, do nothing."""
    quiet_libraries()
    run = Run.open(path)
    if deadline is not None and time.time() > deadline:
        return
    donor = _find_donor(out, run, stage, roles)
    for role in roles:
        if not is_finished(run, stage, None if stage == BASE else role):
            if donor is not None:
                copy_stage(donor, run, stage, None if stage == BASE else role)
            else:
                _train(run, stage, role)
        _score(donor, run, stage, role)
    if stage == "marl":
        if donor is not None:
            copy_scores(donor, run, stage, "team")
        evaluate_team(run.path, stage)


def _train(run: Run, stage: str, role: str) -> None:
    if stage == BASE:
        train_base(run.path)
    elif stage == "sft":
        train_sft(run.path, role)
    elif stage == "sft_more":
        train_sft_more(run.path, role)
    elif stage == "sft_own":
        train_sft_own(run.path, role)
    elif stage == "grpo":
        train_grpo(run.path, role)
    else:
        train_marl(run.path)


def _score(donor: Run | None, run: Run, stage: str, role: str) -> None:
    if stage == BASE:
        return
    if donor is not None:
        copy_scores(donor, run, stage, role)
    evaluate_role(run.path, stage, role)


def _find_donor(out: Path, run: Run, stage: str, roles: Sequence[str]) -> Run | None:
    """A run under `out` with this stage finished by an equal config, best one with equal tests."""
    wanted = prefix_digest(run.config, stage)
    found: Run | None = None
    for config in sorted(out.glob("*/*/seed-*/config.yaml")):
        if config.parent.resolve() == run.path.resolve():
            continue
        other = Run.open(config.parent)
        if prefix_digest(other.config, stage) == wanted and all(
            is_finished(other, stage, None if stage == BASE else role) for role in roles
        ):
            if other.config.evaluation == run.config.evaluation:
                return other
            found = found or other
    return found


def _find_hopeless(plan: AblationPlan, folder: Path, cells: Sequence[Cell]) -> list[str]:
    """Cells whose interval after one seed lies wholly under the best cell's."""
    rows = [_measure(plan, folder, cell, []) for cell in cells]
    low = best_low(rows)
    return [row.cell for row in rows if row.mean is not None and row.mean.high < low]


def _measure(plan: AblationPlan, folder: Path, cell: Cell, stopped: Sequence[str]) -> AblationRow:
    paths = [folder / cell.slug / f"seed-{seed}" for seed in plan.seeds]
    owners = list(plan.roles or ROLES) + (["team"] if plan.stages[-1] == "marl" else [])
    before = (
        "sft"
        if plan.stages[-1] in ("grpo", *ROLE_CONTROLS)
        else "grpo"
        if plan.stages[-1] == "marl"
        else None
    )
    return measure_cell(
        cell.name,
        dict(cell.changes),
        paths,
        owners=owners,
        stage=plan.stages[-1],
        before=before,
        note="stopped: no chance after the first seed" if cell.name in stopped else "",
        train_s=_train_seconds(plan, paths),
        first=_first_paths(plan, folder, cell),
        validations=_list_validations(paths) if plan.stages[-1] == "marl" else (),
    )


def _list_validations(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Best and last validation of joint training, seed by seed, where there are any."""
    found = []
    for run in (Run.open(path) for path in paths if (path / "config.yaml").is_file()):
        while run.is_done("marl") and (donor := run.read_payload("marl").get("taken_from")):
            run = Run.open(Path(donor))
        found.append(describe_validation(list_joint_steps(run)))
    return [one for one in found if one]


def _first_paths(plan: AblationPlan, folder: Path, cell: Cell) -> list[Path]:
    """The first cell's runs to compare with; none for itself, or where the cells' tests differ."""
    cells = list_cells(plan)
    if cell.name == cells[0].name:
        return []
    sections = {key.partition(".")[0] for one in cells for key in one.changes}
    if sections & {"data", "evaluation"}:
        return []
    return [folder / cells[0].slug / f"seed-{seed}" for seed in plan.seeds]


def _train_seconds(plan: AblationPlan, paths: Sequence[Path]) -> float:
    """Mean seconds of training of the measured stage, over all its roles, per finished seed."""
    seconds: list[float] = []
    for path in paths:
        if not (path / "config.yaml").is_file():
            continue
        run = Run.open(path)
        markers = dict.fromkeys(stage_marker(run, plan.stages[-1], role) for role in plan.roles or ROLES)
        payloads: list[dict[str, Any]] = [run.read_payload(one) for one in markers if run.is_done(one)]
        if payloads:
            seconds.append(sum(float(payload["train_s"]) for payload in payloads))
    return sum(seconds) / len(seconds) if seconds else 0.0

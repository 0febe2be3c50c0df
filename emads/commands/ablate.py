"""`emads ablate`: a grid over config keys, from a strict YAML file; every cell is an ordinary run.

OUT/NAME/CELL/seed-N    a run folder each
OUT/NAME/ablation.json  the measured table;  results.md beside it

Cells share stages in which they do not differ: weights and scores of a stage whose config is equal are taken
over from any finished run under OUT. A call goes on where an earlier one was killed.
"""

import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from emads.commands.evaluate import list_joint_steps
from emads.commands.stages import control_tasks, demo_tasks, perform
from evaluation.summary.comparison import ablation_table, measure_cell, write_ablation
from evaluation.summary.run_summary import describe_validation
from evaluation.summary.tables import print_tables
from roles.errors import UserError, unknown
from roles.registry import ROLES
from scenarios.written.strict_yaml import explain_fault, parse_located_yaml, read_user_text
from training.config.loading import validate_config
from training.config.run_config import RunConfig
from training.config.section import Section
from training.models.adapters import owners_of
from training.models.weights import BASE, stage_marker
from training.runs.run_folder import Run
from training.runs.workers import Task
from training.stages.table import prefix_digest, take_over

AblationStage = Literal["sft", "sft_more", "sft_own", "grpo", "marl"]
BEFORE: dict[str, str] = {"grpo": "sft", "sft_more": "sft", "sft_own": "sft", "marl": "grpo"}


class AblationPlan(Section):
    """The settings to vary, the stages to train and the comparison to make.

    Example: AblationPlan(name="kl", grid={"grpo.loss.kl_coefficient": [0.0, 0.05]}, stages=("sft", "grpo"))
    """

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,39}$")]
    """Name of the folder: lower-case letters, digits and `-`."""
    question: str = ""
    """The question of the ablation, one sentence for the table."""
    base: dict[str, Any] = Field(default={})
    """Keys of a run's config that all cells share."""
    grid: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(default={})
    """Dotted config keys and their values: every combination is a cell."""
    cells: dict[str, dict[str, Any]] = Field(default={})
    """Named cells of dotted config keys, for what is no grid; combined with the grid where both are given."""
    stages: Annotated[tuple[AblationStage, ...], Field(min_length=1)] = ("sft", "grpo")
    """Stages that every cell trains; the last one is measured."""
    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)] = (0,)
    """Repeats: config.seed of each."""
    roles: tuple[str, ...] = ()
    """Roles that are trained and measured; none: all. Joint training takes all."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        for role in self.roles:
            if role not in ROLES:
                raise ValueError(str(unknown("role", role, list(ROLES))))
        for stage in self.stages:
            if (before := BEFORE.get(stage, stage)) not in self.stages:
                raise ValueError(f"stage {stage} starts from {before}: add it to stages")
        if "marl" in self.stages and self.roles:
            raise ValueError("joint training takes all roles: leave out roles")
        if not self.grid and not self.cells:
            raise ValueError("nothing varies: give a grid, or cells")
        if len(set(self.seeds)) != len(self.seeds):
            raise ValueError(f"seeds {list(self.seeds)} repeat one")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationCell:
    """One variant of the config.

    Example: AblationCell(name="group_size=4", slug="group_size-4", changes={"grpo.group_size": 4})
    """

    name: str
    slug: str  # folder name
    changes: dict[str, Any]  # by dotted key


def read_plan(path: Path) -> AblationPlan:
    """Return the plan of a file; every cell's config is checked, too.

    Raises:
        UserError: cannot be read, malformed, a wrong key, a cell that is no config; names the place.
    """
    text = read_user_text(path, "ablation")
    located = parse_located_yaml(text, str(path))
    if not isinstance(located.value, dict):
        raise UserError(f"{path}: must be a mapping of keys, see docs/how-to/evaluate.md")
    try:
        plan = AblationPlan.model_validate_json(json.dumps(located.value))
    except ValidationError as error:
        raise explain_fault(
            error, located, str(path), lambda depth: AblationPlan.model_fields, "the plan"
        ) from None
    for cell in list_cells(plan):
        configure(plan, cell, plan.seeds[0], str(path))
    return plan


def list_cells(plan: AblationPlan) -> list[AblationCell]:
    """Return every cell in order: named cells first, each with every combination of the grid."""
    names = list(plan.grid)
    short = [name.rpartition(".")[2] for name in names]
    titles = [last if short.count(last) == 1 else name for name, last in zip(names, short, strict=True)]
    cells = []
    for label, fixed in plan.cells.items() or {"": {}}.items():
        for values in itertools.product(*plan.grid.values()):
            changes = {**fixed, **dict(zip(names, values, strict=True))}
            shown = [
                f"{name}={value if isinstance(value, str) else json.dumps(value)}"
                for name, value in zip(titles, values, strict=True)
            ]
            title = ", ".join([*([label] if label else []), *shown])
            slug = re.sub(r"[^A-Za-z0-9._]+", "-", title.replace("=", "-")).strip("-")[:80] or "cell"
            cells.append(AblationCell(name=title, slug=slug, changes=changes))
    slugs = [cell.slug for cell in cells]
    repeated = next((slug for slug in slugs if slugs.count(slug) > 1), None)
    if repeated is not None:
        raise UserError(
            f"ablation {plan.name}: two cells would be called {repeated!r}; give them other names"
        )
    return cells


def configure(plan: AblationPlan, cell: AblationCell, seed: int, source: str) -> RunConfig:
    """Return the config of a cell and seed; it runs in one process.

    Raises:
        UserError: no config; names the key.
    """
    values: dict[str, Any] = json.loads(json.dumps(plan.base))
    for key, value in cell.changes.items():
        section = values
        *path, last = key.split(".")
        for part in path:
            section = section.setdefault(part, {})
            if not isinstance(section, dict):
                raise UserError(f"{source}: {key}: {part} is not a section")
        section[last] = value
    taken = [key for key in ("seed", "name", "num_workers") if key in values]
    if taken:
        raise UserError(f"{source}: {taken[0]} is set by the ablation itself; leave it out (seeds: repeats)")
    values |= {"seed": seed, "name": plan.name, "num_workers": 0}
    return validate_config(values, source)


def ablate(path: Path, out: Path, *, workers: int) -> Path:
    """Run every cell of the plan that is not done yet; return the folder of the results.

    Raises:
        UserError: a wrong plan, or a folder that holds other runs.
    """
    plan = read_plan(path)
    folder, cells = out / plan.name, list_cells(plan)
    for seed in plan.seeds:
        for cell in cells:
            run = Run.create(folder / cell.slug / f"seed-{seed}", configure(plan, cell, seed, str(path)))
            _take_shared_stages(out, run)
            title = f"{plan.name}: {cell.name}, seed {seed}"
            perform(run, _list_tasks(plan, run), title, num_workers=workers)
    rows = [_measure(plan, folder, cell, cells[0]) for cell in cells]
    write_ablation(folder, plan.name, plan.question, rows, command=f"emads ablate --config {path}")
    print_tables([ablation_table(plan.question or plan.name, rows)])
    print(f"results: {folder / 'results.md'}")
    return folder


def _take_shared_stages(out: Path, run: Run) -> None:
    """Take over, from all runs under `out`, every stage that an equal config finished."""
    for config in sorted(out.glob("*/*/seed-*/config.yaml")):
        donor = Run.open(config.parent)
        is_alike = prefix_digest(donor.config, BASE) == prefix_digest(run.config, BASE)
        if is_alike and donor.path.resolve() != run.path.resolve():
            take_over(donor, run)


def _list_tasks(plan: AblationPlan, run: Run) -> list[Task]:
    """The tasks of the plan's stages: training, the roles' scores, of joint training the team's."""
    roles, model = plan.roles or tuple(ROLES), run.config.model
    wanted = {BASE, "marl"} & {BASE, *plan.stages}
    wanted |= {f"{stage}/{owner}" for stage in plan.stages for owner in owners_of(model, roles)}
    wanted |= {f"evaluate/{stage}/{role}" for stage in plan.stages for role in roles}
    wanted |= {"evaluate/marl/team"} if "marl" in plan.stages else set()
    return [task for task in [*demo_tasks(run), *control_tasks(run)] if task.name in wanted]


def _measure(plan: AblationPlan, folder: Path, cell: AblationCell, first: AblationCell) -> dict[str, Any]:
    """Measure a cell against the first one, unless it is that one or the cells' tests differ."""
    stage, paths = plan.stages[-1], [folder / cell.slug / f"seed-{seed}" for seed in plan.seeds]
    is_alike = not {key.partition(".")[0] for one in list_cells(plan) for key in one.changes} & {
        "data",
        "evaluation",
    }
    is_compared = cell.name != first.name and is_alike
    return measure_cell(
        cell.name,
        dict(cell.changes),
        paths,
        owners=list(plan.roles or ROLES) + (["team"] if stage == "marl" else []),
        stage=stage,
        before=BEFORE.get(stage),
        train_s=_train_seconds(plan, paths),
        first=[folder / first.slug / f"seed-{seed}" for seed in plan.seeds] if is_compared else [],
        validations=_list_validations(paths) if stage == "marl" else (),
    )


def _list_validations(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """List best and last validation of joint training, seed by seed, where there are any."""
    found = []
    for run in map(Run.open, paths):
        while donor := run.read_payload("marl").get("taken_from"):
            run = Run.open(Path(donor))
        found.append(describe_validation(list_joint_steps(run)))
    return [one for one in found if one]


def _train_seconds(plan: AblationPlan, paths: Sequence[Path]) -> float:
    """Return mean seconds of training of the measured stage, over all its roles, per seed."""
    seconds = 0.0
    for run in map(Run.open, paths):
        markers = dict.fromkeys(stage_marker(run, plan.stages[-1], role) for role in plan.roles or ROLES)
        seconds += sum(float(run.read_payload(marker)["train_s"]) for marker in markers)
    return seconds / len(paths)

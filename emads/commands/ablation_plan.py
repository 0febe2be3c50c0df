"""An ablation: a grid over config keys and repeats, as a strict YAML file; see docs/how-to/evaluate.md."""

import itertools
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from roles.errors import UserError, unknown
from roles.registry import ROLES
from scenarios.written.strict_yaml import explain_fault, parse_located_yaml, read_user_text
from training.config.loading import validate_config
from training.config.run_config import RunConfig
from training.config.section import Section

AblationStage = Literal["sft", "sft_more", "sft_own", "grpo", "marl"]
STAGE_ORDER: tuple[AblationStage, ...] = ("sft", "grpo", "sft_more", "sft_own", "marl")
_NEEDS: dict[str, tuple[str, ...]] = {
    "sft": (),
    "grpo": ("sft",),
    "sft_more": ("sft",),
    "sft_own": ("sft",),
    "marl": ("grpo",),
}


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
    stop_hopeless: bool = False
    """After the first seed, leave out cells whose interval lies wholly under the best cell's."""
    max_minutes: Annotated[float, Field(gt=0)] | None = None
    """Start nothing new after this many minutes; what is missing is listed, and a later call goes on."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        for role in self.roles:
            if role not in ROLES:
                raise ValueError(str(unknown("role", role, list(ROLES))))
        for stage in self.stages:
            missing = [one for one in _NEEDS[stage] if one not in self.stages]
            if missing:
                raise ValueError(f"stage {stage} starts from {missing[0]}: add it to stages")
        if "marl" in self.stages and self.roles:
            raise ValueError("joint training takes all roles: leave out roles")
        if not self.grid and not self.cells:
            raise ValueError("nothing varies: give a grid, or cells")
        if len(set(self.seeds)) != len(self.seeds):
            raise ValueError(f"seeds {list(self.seeds)} repeat one")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One variant of the config.

    Example: Cell(name="group_size=4", slug="group_size-4", changes={"grpo.group_size": 4})
    """

    name: str
    slug: str  # folder name
    changes: dict[str, Any]  # by dotted key


def read_plan(path: Path) -> AblationPlan:
    """The plan of a file; every cell's config is checked, too.

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


def list_cells(plan: AblationPlan) -> list[Cell]:
    """Every cell in order: named cells first, each with every combination of the grid."""
    names = list(plan.grid)
    short = [name.rpartition(".")[2] for name in names]
    titles = [last if short.count(last) == 1 else name for name, last in zip(names, short, strict=True)]
    cells = []
    for label, fixed in plan.cells.items() or {"": {}}.items():
        for values in itertools.product(*plan.grid.values()):
            changes = {**fixed, **dict(zip(names, values, strict=True))}
            shown = [f"{name}={_spell(value)}" for name, value in zip(titles, values, strict=True)]
            title = ", ".join([*([label] if label else []), *shown])
            cells.append(Cell(name=title, slug=_slug(title), changes=changes))
    slugs = [cell.slug for cell in cells]
    repeated = next((slug for slug in slugs if slugs.count(slug) > 1), None)
    if repeated is not None:
        raise UserError(
            f"ablation {plan.name}: two cells would be called {repeated!r}; give them other names"
        )
    return cells


def configure(plan: AblationPlan, cell: Cell, seed: int, source: str) -> RunConfig:
    """The config of a cell and seed; it runs in one process.

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


def _spell(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _slug(title: str) -> str:
    return re.sub(r"[^A-Za-z0-9._]+", "-", title.replace("=", "-")).strip("-")[:80] or "cell"

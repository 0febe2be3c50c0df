"""Opens the tasks of a solver: a folder of `emads import`, or one of the generated task families."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from roles.base import Role
from roles.errors import UserError, unknown
from scenarios.base import Family, Scenario, Split
from scenarios.tasks.imported import ROLE, SealKey, list_scenarios, make_family, require_key
from scenarios.tasks.registry import TASK_FAMILIES, TASK_ROLES
from training.data.demonstrations import difficulty_of
from training.data.tasks.importing import ImportIndex, read_tasks

Draw = Callable[[Split, int, SealKey | None], list[Scenario]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSource:
    """Tasks of one kind, and who solves them.

    Example: open_source("runs/gsm8k", seed=0, difficulties=(1, 2)).draw("train", 100, None)
    """

    name: str
    family: Family
    role: Role
    identity: str  # changes with the tasks
    draw: Draw
    # draw(split, most, key): up to `most` scenarios, all there are where they are fewer;
    # UserError for the test split without a valid key


def open_source(place: str, *, seed: int, difficulties: Sequence[int]) -> TaskSource:
    """The tasks of an imported folder, or those of a generated family by its name.

    Seed and difficulties choose generated tasks; a folder has the tasks that it has.

    Raises:
        UserError: neither, or a damaged folder.
    """
    if place in TASK_FAMILIES:
        return _open_generated(place, seed, difficulties)
    if not Path(place).exists():
        raise unknown("task family or folder", place, list(TASK_FAMILIES))
    return _open_folder(Path(place))


def _open_generated(name: str, seed: int, difficulties: Sequence[int]) -> TaskSource:
    family = TASK_FAMILIES[name]

    def draw(split: Split, most: int, key: SealKey | None) -> list[Scenario]:
        require_key(name, split, key)
        return [
            family.generate(split, seed, index, difficulty_of(index, difficulties)) for index in range(most)
        ]

    levels = ",".join(map(str, difficulties))
    return TaskSource(
        name=name, family=family, role=TASK_ROLES[name], identity=f"{name}/{seed}/{levels}", draw=draw
    )


def _open_folder(folder: Path) -> TaskSource:
    tasks = read_tasks(folder)

    def draw(split: Split, most: int, key: SealKey | None) -> list[Scenario]:
        found = list_scenarios(tasks, split, key)[:most]
        if not found:
            raise UserError(f"{folder} has no {split} tasks; import more questions")
        return found

    index = (folder / ImportIndex.FILE).read_bytes()
    identity = f"{tasks.name}/{hashlib.sha256(index).hexdigest()[:16]}"
    return TaskSource(name=tasks.name, family=make_family(tasks), role=ROLE, identity=identity, draw=draw)

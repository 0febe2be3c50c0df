"""Checks folders of `emads import`: shards, splits, tools and answers; and chooses the check of a folder."""

from collections.abc import Iterator
from pathlib import Path

from roles.errors import UserError
from scenarios.base import SPLITS
from scenarios.tasks.imported import list_scenarios, verify
from scenarios.tasks.splits import unseal_test
from training.data.folders.columns import COLUMNS
from training.data.folders.rows import Row
from training.data.folders.validation import RowProblem, ValidationReport, validate_folder
from training.data.tasks.importing import build_row, read_rows, read_tasks
from training.data.tasks.index import ImportIndex


def validate_data(folder: Path, *, keep: Path | None = None) -> ValidationReport:
    """Check a data folder of any kind; clean rows go to `keep`, but not those of imported tasks.

    Raises:
        UserError: as `validate_folder` and `validate_import`.
    """
    if not (folder / ImportIndex.FILE).exists():
        return validate_folder(folder, keep=keep)
    if keep is not None:
        raise UserError(f"{folder} holds imported tasks: leave --keep out and import the files again")
    return validate_import(folder)


def validate_import(folder: Path) -> ValidationReport:
    """Rebuild every row from its question and solution, and compare split, tool results, answer and score.

    Raises:
        UserError: a damaged or interrupted folder; a shard that is not the one that was imported.
    """
    problems: list[RowProblem] = []
    num_rows = 0
    tasks = read_tasks(folder)
    with unseal_test() as key:
        for split in SPLITS:
            rows = read_rows(folder, split, key)
            num_rows += len(rows)
            rebuilt = [
                (build_row(scenario), verify(scenario, scenario.truth["steps"][-1][0]).reward)
                for scenario in list_scenarios(tasks, split, key)  # type: ignore[arg-type]
            ]
            for number, reason in _find_faults(rows, rebuilt):
                problems.append(RowProblem(file=f"{tasks.name}/{split}", row=number, reason=reason))
    return ValidationReport(
        num_rows=num_rows,
        num_clean=num_rows - len({(p.file, p.row) for p in problems}),
        problems=tuple(problems),
    )


def _find_faults(rows: list[Row], rebuilt: list[tuple[Row, float]]) -> Iterator[tuple[int, str]]:
    """Row numbers with the first thing that is wrong with them."""
    by_question = {row["brief"]: (row, reward) for row, reward in rebuilt}
    for number, row in enumerate(rows):
        if row["brief"] not in by_question:
            yield number, "its question belongs to another split"
            continue
        expected, reward = by_question[row["brief"]]
        differing = [name for name in COLUMNS if row[name] != expected[name]]
        if differing:
            yield number, f"{differing[0]} differs from what its question and solution give"
        elif reward != 1:
            yield number, f"its own solution scores {reward:g}"

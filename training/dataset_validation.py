"""Checks a data folder row by row against the generators: names what is corrupt, counts what is clean."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from roles.errors import UserError
from scenarios.base import Split, check_coordinates
from scenarios.registry import FAMILIES
from training.dataset_index import Shard, read_index
from training.dataset_rows import COLUMNS, TEAM, Row, build_rows
from training.datasets import SCHEMA
from training.progress import progress


@dataclass(frozen=True, slots=True, kw_only=True)
class RowProblem:
    """Why a row, or a whole file, is not what the generators make.

    Example: RowProblem(file="cto/train-00000.parquet", row=17, reason="answer differs from its scenario's")
    """

    file: str
    row: int | None  # counted from 0; None where the whole file is meant
    reason: str

    def __str__(self) -> str:
        return f"{self.file}{'' if self.row is None else f' row {self.row}'}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationReport:
    """What was checked. Example: ValidationReport(num_rows=8000, num_clean=7999, problems=(...,))"""

    num_rows: int  # rows that could be read
    num_clean: int
    problems: tuple[RowProblem, ...]


def validate_folder(folder: Path) -> ValidationReport:
    """Generate every row again, score its answer again, and compare.

    Raises:
        UserError: no data there, or a damaged dataset.json.
    """
    files = sorted(path.relative_to(folder).as_posix() for path in folder.glob("*/*.parquet"))
    shards = {shard.path: shard for shard in read_index(folder).shards}
    if not files and not shards:
        raise UserError(
            f"no data in {folder} (no FAMILY/SPLIT-NUMBER.parquet there); make some with `emads generate`"
        )
    problems = [
        RowProblem(file=path, row=None, reason="file is missing") for path in sorted(shards.keys() - files)
    ]
    num_rows = num_clean = 0
    seen: dict[tuple[str, str], str] = {}
    with progress("validate", total=len(files)) as bar:
        for file in files:
            rows, found = _check_file(folder, file, shards.get(file), seen)
            num_rows += rows
            num_clean += rows - len({problem.row for problem in found if problem.row is not None})
            problems += found
            bar.advance(1, corrupt=len(problems))
    return ValidationReport(num_rows=num_rows, num_clean=num_clean, problems=tuple(problems))


def _check_file(
    folder: Path, file: str, shard: Shard | None, seen: dict[tuple[str, str], str]
) -> tuple[int, list[RowProblem]]:
    """Number of readable rows and the problems of one file; `seen` grows by its rows."""
    try:
        with pq.ParquetFile(folder / file, page_checksum_verification=True) as parquet:
            table = parquet.read()
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0][:200]
        return 0, [RowProblem(file=file, row=None, reason=f"truncated or corrupt Parquet file ({reason})")]
    if not table.schema.equals(SCHEMA):
        return 0, [RowProblem(file=file, row=None, reason=f"columns are not {', '.join(COLUMNS)}")]
    problems = []
    if shard is not None and table.num_rows != shard.num_rows:
        reason = f"has {table.num_rows} rows, dataset.json says {shard.num_rows}"
        problems.append(RowProblem(file=file, row=None, reason=reason))
    for number, row in enumerate(_read_rows(table)):
        fault = _find_fault(row) if isinstance(row, dict) else row
        if fault is None and isinstance(row, dict):
            key = (row["key"], row["role"])
            fault = f"repeats {seen[key]}" if key in seen else None
            seen.setdefault(key, f"{file} row {number}")
        if fault is not None:
            problems.append(RowProblem(file=file, row=number, reason=fault))
    return table.num_rows, problems


def _read_rows(table: pa.Table) -> Iterator[Row | str]:
    """Each row, or why it cannot be read."""
    columns = [(name, table[name].combine_chunks()) for name in table.column_names]
    for number in range(table.num_rows):
        try:
            yield {name: column[number].as_py() for name, column in columns}
        except UnicodeDecodeError:
            yield "text is not UTF-8"


def _find_fault(row: Row) -> str | None:
    """The first thing wrong with a row; None for a clean one."""
    for name, kind in COLUMNS.items():
        if not isinstance(row[name], kind):
            return f"{name} is missing"
    coordinates = [row[name] for name in ("family", "split", "seed", "index", "difficulty")]
    if row["family"] not in (*FAMILIES, TEAM):
        return f"unknown family {row['family'][:40]!r}"
    try:
        check_coordinates(*coordinates[1:])
    except ValueError as error:
        return str(error)[:200]
    if row["key"] != "/".join(str(part) for part in coordinates):
        return f"key {row['key'][:80]!r} contradicts the coordinates {coordinates}"
    expected = _expected_rows(*coordinates).get(row["role"])
    if expected is None:
        return f"scenario {row['key']} has no role {row['role'][:40]!r}"
    return _first_difference(row, expected)


@lru_cache(maxsize=8)
def _expected_rows(family: str, split: Split, seed: int, index: int, difficulty: int) -> dict[str, Row]:
    """By role; generating scores the answer and runs the tools again. Cached: five rows share a team case."""
    return {row["role"]: row for row in build_rows(family, split, seed, index, difficulty)}


def _first_difference(row: Row, expected: Row) -> str | None:
    differing = [name for name in COLUMNS if row[name] != expected[name]]
    if not differing:
        return None
    name = differing[0]
    return f"{name} differs from what its scenario gives: {_around_difference(row[name], expected[name])}"


def _around_difference(found: Any, expected: Any) -> str:
    """Both texts from shortly before their first difference on."""
    found, expected = str(found), str(expected)
    start = next((i for i, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b), None)
    start = max(0, (min(len(found), len(expected)) if start is None else start) - 10)
    return f"{_cut(found, start)} instead of {_cut(expected, start)}"


def _cut(text: str, start: int, length: int = 40) -> str:
    return repr(("..." if start else "") + text[start : start + length])


def summarise(report: ValidationReport, most: int = 20) -> Sequence[str]:
    """The first problems, a line each, and a closing line with the counts."""
    lines = [str(problem) for problem in report.problems[:most]]
    if len(report.problems) > most:
        lines.append(f"... and {len(report.problems) - most} more problems")
    return [*lines, f"{report.num_clean} of {report.num_rows} rows are clean"]

"""Checks a data folder row by row against the generators and names what is corrupt."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from evaluation.audit.text_solvers import RULES
from roles.errors import UserError
from scenarios.base import SPLITS, Scenario, Split, check_coordinates
from training.data.demonstrations import difficulty_of
from training.data.folders.index import DatasetIndex, OracleShard, TeacherIndex, TeacherShard
from training.data.folders.rows import COLUMNS, SCHEMA, SOLO_FAMILIES, TEAM, Row, build_rows, generate_case
from training.data.teacher.checks import ANY_REWARD, AUTHOR_PREFIX, find_teacher_fault
from training.data.teacher.lessons import AUTHOR_PREFIX as PARAPHRASE_PREFIX
from training.data.teacher.lessons import find_paraphrase_fault
from training.runs.progress import progress

SHARD_NAME = re.compile(rf"(\w+)/({'|'.join(SPLITS)})-\d{{5}}\.parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowProblem:
    """Fault of a row, or of a whole file, that the generators do not make.

    Example: RowProblem(file="cto/train-00000.parquet", row=17, reason="answer differs from its scenario's")
    """

    file: str
    row: int | None  # counted from 0; None where the whole file is meant
    reason: str

    def __str__(self) -> str:
        return f"{self.file}{'' if self.row is None else f' row {self.row}'}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationReport:
    """Result of a validation. Example: ValidationReport(num_rows=8000, num_clean=7999, problems=(...,))"""

    num_rows: int  # rows that could be read
    num_clean: int
    problems: tuple[RowProblem, ...]


def validate_folder(folder: Path) -> ValidationReport:
    """Generate every row again, score its answer again, and compare.

    Raises:
        UserError: no data there, or a damaged dataset.json.
    """
    files = sorted(path.relative_to(folder).as_posix() for path in folder.glob("*/*.parquet"))
    shards = DatasetIndex.read(folder).by_path()
    by_teacher = TeacherIndex.read(folder).by_path()
    if not files and not shards and not by_teacher:
        raise UserError(
            f"no data in {folder} (no FAMILY/SPLIT-NUMBER.parquet there); make some with `emads generate`"
        )
    missing = sorted({*shards, *by_teacher} - set(files))
    problems = [RowProblem(file=path, row=None, reason="file is missing") for path in missing]
    num_rows = num_clean = 0
    seen: dict[tuple[str, str], str] = {}
    with progress("validate", total=len(files), unit="files") as bar:
        for file in files:
            table, found = _check_file(folder, file, shards.get(file), by_teacher.get(file), seen)
            problems += found
            if table is not None:
                num_rows += table.num_rows
                num_clean += table.num_rows - len({one.row for one in found} - {None})
            bar.advance(1, corrupt=len(problems))
    return ValidationReport(num_rows=num_rows, num_clean=num_clean, problems=tuple(problems))


def _check_file(
    folder: Path,
    file: str,
    shard: OracleShard | None,
    by_teacher: TeacherShard | None,
    seen: dict[tuple[str, str], str],
) -> tuple[pa.Table | None, list[RowProblem]]:
    """A file's rows (None where it holds no such rows) and its faults; `seen` grows by its rows."""
    place = SHARD_NAME.fullmatch(file)
    try:
        with pq.ParquetFile(folder / file, page_checksum_verification=True) as parquet:
            table = parquet.read()
    except (pa.ArrowException, OSError) as error:
        reason = f"truncated or corrupt Parquet file ({str(error).splitlines()[0][:200]})"
        return None, [RowProblem(file=file, row=None, reason=reason)]
    if not table.schema.equals(SCHEMA) or place is None:
        columns = f"columns are not {', '.join(COLUMNS)}"
        reason = "name is not FAMILY/SPLIT-NUMBER.parquet" if table.schema.equals(SCHEMA) else columns
        return None, [RowProblem(file=file, row=None, reason=reason)]
    problems = []
    listed = shard or by_teacher
    if listed is not None and table.num_rows != listed.num_rows:
        index = DatasetIndex.FILE if shard is not None else TeacherIndex.FILE
        reason = f"has {table.num_rows} rows, {index} says {listed.num_rows}"
        problems.append(RowProblem(file=file, row=None, reason=reason))
    for number, row in enumerate(_read_rows(table)):
        fault = _find_fault(row, place[1], place[2], shard, by_teacher) if isinstance(row, dict) else row
        if fault is None and isinstance(row, dict):
            key = (row["key"], row["role"])
            fault = f"repeats {seen[key]}" if key in seen else None
            seen.setdefault(key, f"{file} row {number}")
        if fault is not None:
            problems.append(RowProblem(file=file, row=number, reason=fault))
    return table, problems


def _read_rows(table: pa.Table) -> Iterator[Row | str]:
    """Each row, or why it cannot be read."""
    columns = [(name, table[name].combine_chunks()) for name in table.column_names]
    for number in range(table.num_rows):
        try:
            yield {name: column[number].as_py() for name, column in columns}
        except UnicodeDecodeError:
            yield "text is not UTF-8"


def _find_fault(
    row: Row, family: str, split: str, shard: OracleShard | None, by_teacher: TeacherShard | None
) -> str | None:
    """The first thing wrong with a row of a file of this family and split; None for a clean one."""
    for name, kind in COLUMNS.items():
        if not isinstance(row[name], kind):
            return f"{name} is missing"
    coordinates = [row[name] for name in ("family", "split", "seed", "index", "difficulty")]
    if row["family"] not in (*SOLO_FAMILIES, TEAM):
        return f"unknown family {row['family'][:40]!r}"
    try:
        check_coordinates(*coordinates[1:])
    except ValueError as error:
        return str(error)[:200]
    if row["key"] != "/".join(str(part) for part in coordinates):
        return f"key {row['key'][:80]!r} contradicts the coordinates {coordinates}"
    if (row["family"], row["split"]) != (family, split):
        return f"{row['key']} does not belong in a file of {family}/{split}"
    if shard is not None and not (
        row["seed"] == shard.seed
        and shard.start <= row["index"] < shard.stop
        and row["difficulty"] == difficulty_of(row["index"], shard.difficulties)
    ):
        return f"{row['key']} is not among the scenarios that dataset.json gives this file"
    expected = _expected_rows(*coordinates).get(row["role"])
    if expected is None:
        return f"scenario {row['key']} has no role {row['role'][:40]!r}"
    if row["author"].startswith(PARAPHRASE_PREFIX) and row["family"] in RULES:
        free = {name: row[name] for name in ("brief", "messages", "author")}
        scenario = generate_case(row["family"], *coordinates[1:])
        assert isinstance(scenario, Scenario)
        return _first_difference(row, expected | free) or find_paraphrase_fault(row, expected, scenario)
    if row["author"].startswith(AUTHOR_PREFIX):
        free = {name: row[name] for name in ("messages", "answer", "author")}
        fault = _first_difference(row, expected | free)
        return fault or find_teacher_fault(row, by_teacher.min_reward if by_teacher else ANY_REWARD)
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
    texts = [str(found), str(expected)]
    start = max(0, len(os.path.commonprefix(texts)) - 10)  # noqa: RUF071 (texts, not paths)
    return " instead of ".join(repr(("..." if start else "") + text[start : start + 40]) for text in texts)


def summarise(report: ValidationReport, most: int = 20) -> Sequence[str]:
    """The first problems, a line each, and a closing line with the counts."""
    lines = [str(problem) for problem in report.problems[:most]]
    if len(report.problems) > most:
        lines.append(f"... and {len(report.problems) - most} more problems")
    return [*lines, f"{report.num_clean} of {report.num_rows} rows are clean"]

"""Checks a data folder row by row against the generators: names what is corrupt, keeps what is clean."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from evaluation.audit.brief_facts import RULES
from roles.errors import UserError
from scenarios.base import SPLITS, Scenario, Split, check_coordinates
from training.data.demonstrations import difficulty_of
from training.data.folders.cleaning import CleanFolder
from training.data.folders.columns import COLUMNS, SCHEMA
from training.data.folders.index import DatasetIndex, OracleShard
from training.data.folders.rows import SOLO_FAMILIES, TEAM, Row, build_rows, generate_case
from training.data.teacher.checks import ANY_REWARD, find_teacher_fault, is_by_teacher
from training.data.teacher.index import TeacherIndex, TeacherShard
from training.data.teacher.paraphrase import AUTHOR_PREFIX as PARAPHRASE_PREFIX
from training.data.teacher.paraphrase import find_paraphrase_fault
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedFile:
    """One file's rows and what is wrong with them. Example: CheckedFile(table=table, problems=[...])"""

    table: pa.Table | None  # None where it cannot be read or holds something else
    problems: list[RowProblem]

    @property
    def num_rows(self) -> int:
        return 0 if self.table is None else self.table.num_rows

    def list_clean(self) -> list[int]:
        """Numbers of the rows that nothing is wrong with."""
        corrupt = {problem.row for problem in self.problems}
        return [number for number in range(self.num_rows) if number not in corrupt]


def validate_folder(folder: Path, *, keep: Path | None = None) -> ValidationReport:
    """Generate every row again, score its answer again, and compare; clean rows go to `keep`.

    `keep` becomes a data folder of its own; rejected.jsonl there lists every problem.

    Raises:
        UserError: no data there, a damaged dataset.json, or `keep` holds something already.
    """
    files = sorted(path.relative_to(folder).as_posix() for path in folder.glob("*/*.parquet"))
    shards = DatasetIndex.read(folder).by_path()
    by_teacher = TeacherIndex.read(folder).by_path()
    if not files and not shards and not by_teacher:
        raise UserError(
            f"no data in {folder} (no FAMILY/SPLIT-NUMBER.parquet there); make some with `emads generate`"
        )
    clean = None if keep is None else CleanFolder(keep)
    missing = sorted({*shards, *by_teacher} - set(files))
    problems = [RowProblem(file=path, row=None, reason="file is missing") for path in missing]
    num_rows = num_clean = 0
    seen: dict[tuple[str, str], str] = {}
    with progress("validate", total=len(files), unit="files") as bar:
        for file in files:
            checked = _check_file(folder, file, shards.get(file), by_teacher.get(file), seen)
            rows = checked.list_clean()
            num_rows += checked.num_rows
            num_clean += len(rows)
            problems += checked.problems
            if clean is not None and checked.table is not None and rows:
                clean.add(file, checked.table.take(rows), shards.get(file))
            bar.advance(1, corrupt=len(problems))
    if clean is not None:
        clean.finish([{"file": p.file, "row": p.row, "reason": p.reason} for p in problems])
    return ValidationReport(num_rows=num_rows, num_clean=num_clean, problems=tuple(problems))


def _check_file(
    folder: Path,
    file: str,
    shard: OracleShard | None,
    by_teacher: TeacherShard | None,
    seen: dict[tuple[str, str], str],
) -> CheckedFile:
    """Faults of one file; `seen` grows by its rows."""
    place = SHARD_NAME.fullmatch(file)
    try:
        with pq.ParquetFile(folder / file, page_checksum_verification=True) as parquet:
            table = parquet.read()
    except (pa.ArrowException, OSError) as error:
        reason = f"truncated or corrupt Parquet file ({str(error).splitlines()[0][:200]})"
        return _reject_file(file, reason)
    if not table.schema.equals(SCHEMA):
        return _reject_file(file, f"columns are not {', '.join(COLUMNS)}")
    if place is None:
        return _reject_file(file, "name is not FAMILY/SPLIT-NUMBER.parquet")
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
    return CheckedFile(table=table, problems=problems)


def _reject_file(file: str, reason: str) -> CheckedFile:
    return CheckedFile(table=None, problems=[RowProblem(file=file, row=None, reason=reason)])


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
    if shard is not None and not _is_of_shard(row, shard):
        return f"{row['key']} is not among the scenarios that dataset.json gives this file"
    expected = _expected_rows(*coordinates).get(row["role"])
    if expected is None:
        return f"scenario {row['key']} has no role {row['role'][:40]!r}"
    if row["author"].startswith(PARAPHRASE_PREFIX) and row["family"] in RULES:
        free = {name: row[name] for name in ("brief", "messages", "author")}
        scenario = generate_case(row["family"], *coordinates[1:])
        assert isinstance(scenario, Scenario)
        return _first_difference(row, expected | free) or find_paraphrase_fault(row, expected, scenario)
    if is_by_teacher(row):
        free = {name: row[name] for name in ("messages", "answer", "author")}
        fault = _first_difference(row, expected | free)
        return fault or find_teacher_fault(row, by_teacher.min_reward if by_teacher else ANY_REWARD)
    return _first_difference(row, expected)


def _is_of_shard(row: Row, shard: OracleShard) -> bool:
    index: int = row["index"]
    is_drawn_here: bool = row["seed"] == shard.seed and shard.start <= index < shard.stop
    return is_drawn_here and bool(row["difficulty"] == difficulty_of(index, shard.difficulties))


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

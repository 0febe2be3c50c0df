"""Tasks of a solver: question files as a data folder, and the source that a folder or a task family is.

A folder has rows of the same form as generated ones, and its test split is sealed:

import.json              what was imported, and the sha256 of every shard once all are written
README.md                the data card; its header names train and validation only
rejected.jsonl           rows that are no task: file, row, reason
NAME/train-00000.parquet, NAME/validation-00000.parquet, sealed/NAME-test-00000.parquet
"""

import hashlib
import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from roles.base import Role
from roles.errors import UserError, unknown
from scenarios.base import Family, Scenario, Split, Step, ToolCall
from scenarios.registry import FAMILIES
from scenarios.tasks.imported import (
    ROLE,
    ImportedTask,
    SealKey,
    TaskSet,
    call_tool,
    demonstrate,
    list_scenarios,
    make_family,
    require_key,
    solve,
    unseal_test,
    verify,
)
from scenarios.tasks.question_files import Rejection, choose_check, read_questions
from scenarios.tasks.registry import TASK_FAMILIES, TASK_ROLES
from simulator.export.atomic_files import claim_folder, explain_os_errors, write_atomic
from training.config.section import StrictRecord
from training.data.demonstrations import difficulty_of
from training.data.folders.card import write_card_file
from training.data.folders.index import FolderIndex, ParquetShard
from training.data.folders.rows import (
    COLUMNS,
    TEAM,
    Row,
    encode_shard,
    list_tools,
    load_messages,
    make_row,
    write_turn,
)
from training.data.folders.validation import RowProblem, ValidationReport, validate_folder


class ImportedFile(StrictRecord):
    """A file that was imported. Example: ImportedFile(file="sums.jsonl", sha256="5c...")"""

    file: str
    sha256: str


class ImportIndex(FolderIndex[ParquetShard]):
    """Content of import.json; without shards while they are being written.

    Example: ImportIndex(format=ImportIndex.FORMAT, name="sums", layout="qa", check="auto",
                         sources=(ImportedFile(...),), shards=(ParquetShard(...),))
    """

    FILE = "import.json"
    FORMAT = "emads-import/2"
    REMEDY = "import the files again into another folder"

    name: str
    layout: str
    check: str
    sources: tuple[ImportedFile, ...]


def read_import_index(folder: Path) -> ImportIndex:
    """The index of a folder of tasks; UserError where there is none, or a damaged one."""
    found = ImportIndex.find(folder)
    if found is None:
        raise UserError(
            f"cannot read {folder / ImportIndex.FILE}: no such file; import files with `emads import`"
        )
    return found


REJECTED, SEALED = "rejected.jsonl", "sealed"
ROWS_PER_SHARD = 1000
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")

_TEXT = """\
# Imported tasks: {name}

{counts}, split by a hash of the question, so that equal questions never cross splits.
`messages` is the whole chat; annotated calculations are calculator calls with their true results. Every row's
solution was checked to end in its answer. `rejected.jsonl` lists the {num_rejected} rows left out.
The test split lies in `sealed/` and is not part of this card's data: only evaluation reads it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """Result of an import. Example: ImportReport(num_rows={"train": 70, ...}, rejections=(...,))"""

    num_rows: dict[str, int]  # by split
    rejections: tuple[Rejection, ...]


def import_tasks(
    paths: Sequence[Path], out: Path, *, layout: str, name: str = "imported", check: str = "auto"
) -> ImportReport:
    """Read question files and write them to `out` as a data folder; the same request gives the same bytes.

    Raises:
        UserError: no file, unusable name, unreadable file, no clean row, a folder with other content.
    """
    if not paths:
        raise UserError("no file to import; name one or more")
    _check_name(name)
    tasks, rejections = read_questions(paths, layout, check)
    if not tasks:
        raise UserError(f"no row is a task; the first of {len(rejections)}: {rejections[0]}")
    contents: dict[str, bytes] = {}
    shards: dict[str, ParquetShard] = {}
    num_rows: dict[str, int] = {}
    with unseal_test() as key:
        for split in SPLITS:
            rows = [build_row(scenario) for scenario in list_scenarios(TaskSet(name, tasks), split, key)]
            num_rows[split] = len(rows)
            place = f"{SEALED}/{name}-test" if split == "test" else f"{name}/{split}"
            for number, start in enumerate(range(0, len(rows), ROWS_PER_SHARD)):
                path, part = f"{place}-{number:05d}.parquet", rows[start : start + ROWS_PER_SHARD]
                contents[path] = encode_shard(part)
                sha256 = hashlib.sha256(contents[path]).hexdigest()
                shards[path] = ParquetShard(
                    path=path, family=name, split=split, num_rows=len(part), sha256=sha256
                )
    report = ImportReport(num_rows=num_rows, rejections=tuple(rejections))
    index = ImportIndex(
        format=ImportIndex.FORMAT,
        name=name,
        layout=layout,
        check=check,
        sources=tuple(
            ImportedFile(file=path.name, sha256=hashlib.sha256(path.read_bytes()).hexdigest())
            for path in paths
        ),
    ).with_shards(shards)
    with explain_os_errors("write data folder", out), claim_folder(out, "data folder"):
        _write_folder(out, index, contents, report)
    return report


def build_row(scenario: Scenario) -> Row:
    """The row of an imported task: its solution played on the real calculator."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": ROLE.mandate},
        {"role": "user", "content": scenario.brief},
    ]
    for step in demonstrate(scenario, random.Random(0)):
        observation = "" if step.call is None else call_tool(scenario, step.call)
        messages += write_turn(step.text, step.call, observation)
    return make_row(
        scenario, ROLE.name, scenario.brief, messages, list_tools(ROLE), solve(scenario), author="import"
    )


def read_rows(folder: Path, split: str, key: SealKey | None = None) -> list[Row]:
    """The rows of a split of an imported folder, their shards checked against import.json.

    Raises:
        UserError: no such folder or split, a damaged file, the test split without a valid key.
    """
    if split not in SPLITS:
        raise unknown("split", split, list(SPLITS))
    index = read_import_index(folder)
    if not index.shards:
        raise UserError(f"the import into {folder} was interrupted; run it again")
    require_key(index.name, split, key)
    return [row for shard in index.shards if shard.split == split for row in _read_shard(folder, shard)]


def read_tasks(folder: Path) -> TaskSet:
    """The tasks of an imported folder as they were imported, the test split sealed as before.

    Raises:
        UserError: no such folder, an interrupted import, a damaged file.
    """
    index = read_import_index(folder)
    with unseal_test() as key:
        rows = [row for split in SPLITS for row in read_rows(folder, split, key)]
    return TaskSet(index.name, [_rebuild_task(row, index) for row in rows])


def _rebuild_task(row: Row, index: ImportIndex) -> ImportedTask:
    answer = json.loads(row["answer"])["answer"]
    steps = []
    for message in load_messages(row["messages"]):
        if message["role"] == "assistant":
            calls = [ToolCall(**call["function"]) for call in message.get("tool_calls", ())]
            steps.append(Step(text=message["content"], call=calls[0] if calls else None))
    return ImportedTask(
        question=row["brief"],
        answer=answer,
        check=choose_check(index.layout, index.check, answer),
        steps=tuple(steps),
        difficulty=row["difficulty"],
        source=row["key"],
    )


def summarise_import(report: ImportReport, most: int = 20) -> list[str]:
    """The first rejected rows, a line each, and a closing line with the counts."""
    lines = [str(rejection) for rejection in report.rejections[:most]]
    if len(report.rejections) > most:
        lines.append(f"... and {len(report.rejections) - most} more, see {REJECTED}")
    num_rejected = len(report.rejections)
    return [*lines, f"{_count(report)}; {num_rejected} row{'' if num_rejected == 1 else 's'} rejected"]


def _check_name(name: str) -> None:
    taken = [*FAMILIES, *TASK_FAMILIES, TEAM, SEALED]
    if not _NAME.fullmatch(name) or name in taken:
        raise UserError(
            f"name {name[:60]!r} must be lower-case letters, digits, - and _, begin with a letter and be none"
            f" of {', '.join(taken)}"
        )


def _write_folder(out: Path, index: ImportIndex, contents: dict[str, bytes], report: ImportReport) -> None:
    begun, found = index.with_shards({}), ImportIndex.find(out)
    if found is None and any(out.iterdir()):
        raise UserError(f"{out} already holds other files; choose another --out")
    if found is not None and found.with_shards({}) != begun:
        raise UserError(f"{out} already holds another import; choose another --out")
    begun.write(out)
    for path, content in contents.items():
        write_atomic(out / path, content)
    write_atomic(out / REJECTED, "".join(json.dumps(asdict(one)) + "\n" for one in report.rejections))
    files: dict[str, list[str]] = {}
    for shard in index.shards:
        if shard.split != "test":  # the header names train and validation only
            files.setdefault(shard.split, []).append(shard.path)
    text = _TEXT.format(name=index.name, counts=_count(report), num_rejected=len(report.rejections))
    write_card_file(out, {index.name: files}, text, pretty_name=f"Imported tasks: {index.name}")
    index.write(out)


def _count(report: ImportReport) -> str:
    total = sum(report.num_rows.values())
    return f"{total} tasks ({', '.join(f'{count} {split}' for split, count in report.num_rows.items())})"


def _read_shard(folder: Path, shard: ParquetShard) -> list[Row]:
    path = folder / shard.path
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; import the files again") from None
    if hashlib.sha256(content).hexdigest() != shard.sha256:
        raise UserError(
            f"{path} is damaged (its sha256 is not that of {ImportIndex.FILE}); import the files again"
        )
    rows: list[Row] = pq.read_table(pa.BufferReader(content)).to_pylist()
    return rows


def validate_data(folder: Path) -> ValidationReport:
    """Check a data folder of any kind; raises as `validate_folder` and `validate_import`."""
    is_import = (folder / ImportIndex.FILE).exists()
    return validate_import(folder) if is_import else validate_folder(folder)


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
            rebuilt = {
                scenario.brief: (build_row(scenario), verify(scenario, scenario.truth["steps"][-1][0]).reward)
                for scenario in list_scenarios(tasks, split, key)
            }
            for number, row in enumerate(read_rows(folder, split, key)):
                num_rows += 1
                reason = _find_fault(row, *rebuilt.get(row["brief"], (None, 0.0)))
                if reason is not None:
                    problems.append(RowProblem(file=f"{tasks.name}/{split}", row=number, reason=reason))
    return ValidationReport(num_rows=num_rows, num_clean=num_rows - len(problems), problems=tuple(problems))


def _find_fault(row: Row, expected: Row | None, reward: float) -> str | None:
    """The first thing that is wrong with a row; None if nothing is."""
    if expected is None:
        return "its question belongs to another split"
    differing = [name for name in COLUMNS if row[name] != expected[name]]
    if differing:
        return f"{differing[0]} differs from what its question and solution give"
    return None if reward == 1 else f"its own solution scores {reward:g}"


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
    folder = Path(place)
    if place in TASK_FAMILIES:
        family = TASK_FAMILIES[place]

        def generate(split: Split, most: int, key: SealKey | None) -> list[Scenario]:
            require_key(place, split, key)
            levels = (difficulty_of(index, difficulties) for index in range(most))
            return [family.generate(split, seed, index, level) for index, level in enumerate(levels)]

        identity = f"{place}/{seed}/{','.join(map(str, difficulties))}"
        role = TASK_ROLES[place]
        return TaskSource(name=place, family=family, role=role, identity=identity, draw=generate)
    if not folder.exists():
        raise unknown("task family or folder", place, list(TASK_FAMILIES))
    tasks = read_tasks(folder)

    def draw(split: Split, most: int, key: SealKey | None) -> list[Scenario]:
        found = list_scenarios(tasks, split, key)[:most]
        if not found:
            raise UserError(f"{folder} has no {split} tasks; import more questions")
        return found

    index = (folder / ImportIndex.FILE).read_bytes()
    identity = f"{tasks.name}/{hashlib.sha256(index).hexdigest()[:16]}"
    return TaskSource(name=tasks.name, family=make_family(tasks), role=ROLE, identity=identity, draw=draw)

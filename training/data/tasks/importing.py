"""Question files as a data folder: rows of the same form as generated ones, the test split sealed.

import.json              what was imported, and the sha256 of every shard once all are written
README.md                the data card; its header names train and validation only
rejected.jsonl           rows that are no task: file, row, reason
NAME/train-00000.parquet, NAME/validation-00000.parquet, sealed/NAME-test-00000.parquet
"""

import hashlib
import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from roles.errors import UserError, unknown
from scenarios.base import SPLITS, Scenario, Split, Step, ToolCall
from scenarios.registry import FAMILIES
from scenarios.tasks.imported import ROLE, call_tool, demonstrate, list_scenarios, solve
from scenarios.tasks.question_files import Rejection, choose_check, read_questions
from scenarios.tasks.registry import TASK_FAMILIES
from scenarios.tasks.splits import SealKey, Task, TaskSet, require_key, unseal_test
from training.data.datasets import encode_shard
from training.data.rows import TEAM, Row, list_tools, make_row, write_turn
from training.runs.atomic_files import claim_folder, encode_json, explain_os_errors, write_atomic

MANIFEST, CARD, REJECTED, SEALED = "import.json", "README.md", "rejected.jsonl", "sealed"
FORMAT: Literal["emads-import/1"] = "emads-import/1"
ROWS_PER_SHARD = 1000
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")

_TEXT = """
# Imported tasks: {name}

{counts}, split by a hash of the question, so that equal questions never cross splits.
`messages` is the whole chat; annotated calculations are calculator calls with their true results. Every row's
solution was checked to end in its answer. `rejected.jsonl` lists the {num_rejected} rows left out.
The test split lies in `sealed/` and is not part of this card's data: only evaluation reads it.
"""


class Source(BaseModel):
    """A file that was imported. Example: Source(file="sums.jsonl", sha256="5c...")"""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    file: str
    sha256: str


class Manifest(BaseModel):
    """Content of import.json.

    Example: Manifest(format=FORMAT, name="sums", layout="qa", check="auto", sources=(Source(...),),
                      shards={"sums/train-00000.parquet": "5c..."})
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    format: Literal["emads-import/1"]
    name: str
    layout: str
    check: str
    sources: tuple[Source, ...]
    shards: dict[str, str] | None  # sha256 by path; None while they are being written


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """What an import did. Example: ImportReport(num_rows={"train": 70, ...}, rejections=(...,))"""

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
    shards: dict[str, bytes] = {}
    num_rows: dict[str, int] = {}
    with unseal_test() as key:
        for split, scenarios in _by_split(TaskSet(name, tasks), key):
            rows = [build_row(scenario) for scenario in scenarios]
            num_rows[split] = len(rows)
            for number, start in enumerate(range(0, len(rows), ROWS_PER_SHARD)):
                shards[_path(name, split, number)] = encode_shard(rows[start : start + ROWS_PER_SHARD])
    report = ImportReport(num_rows=num_rows, rejections=tuple(rejections))
    manifest = Manifest(
        format=FORMAT, name=name, layout=layout, check=check, sources=_digests(paths), shards=None
    )
    with explain_os_errors("write data folder", out):
        out.mkdir(parents=True, exist_ok=True)
        with claim_folder(out):
            _write_folder(out, manifest, shards, report)
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
    manifest = _read_manifest(folder)
    if manifest.shards is None:
        raise UserError(f"the import into {folder} was interrupted; run it again")
    require_key(manifest.name, split, key)
    rows: list[Row] = []
    prefix = _path(manifest.name, split, 0).removesuffix("00000.parquet")
    for path, digest in sorted(manifest.shards.items()):
        if path.startswith(prefix):
            rows += _read_shard(folder / path, digest)
    return rows


def read_tasks(folder: Path) -> TaskSet:
    """The tasks of an imported folder as they were imported, the test split sealed as before.

    Raises:
        UserError: no such folder, an interrupted import, a damaged file.
    """
    manifest = _read_manifest(folder)
    with unseal_test() as key:
        rows = [row for split in SPLITS for row in read_rows(folder, split, key)]
    return TaskSet(manifest.name, [_rebuild_task(row, manifest) for row in rows])


def _rebuild_task(row: Row, manifest: Manifest) -> Task:
    answer = json.loads(row["answer"])["answer"]
    said = [message for message in json.loads(row["messages"]) if message["role"] == "assistant"]
    return Task(
        question=row["brief"],
        answer=answer,
        check=choose_check(manifest.layout, manifest.check, answer),
        steps=tuple(_rebuild_step(message) for message in said),
        difficulty=row["difficulty"],
        source=row["key"],
    )


def _rebuild_step(message: dict[str, Any]) -> Step:
    for call in message.get("tool_calls", ()):
        return Step(text=message["content"], call=ToolCall(**call["function"]))
    return Step(text=message["content"])


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


def _by_split(tasks: TaskSet, key: SealKey) -> Iterator[tuple[Split, list[Scenario]]]:
    splits: tuple[Split, ...] = ("train", "validation", "test")
    for split in splits:
        yield split, list_scenarios(tasks, split, key)


def _path(name: str, split: str, number: int) -> str:
    return f"{f'{SEALED}/{name}-test' if split == 'test' else f'{name}/{split}'}-{number:05d}.parquet"


def _digests(paths: Sequence[Path]) -> tuple[Source, ...]:
    return tuple(
        Source(file=path.name, sha256=hashlib.sha256(path.read_bytes()).hexdigest()) for path in paths
    )


def _read_manifest(folder: Path) -> Manifest:
    path = folder / MANIFEST
    try:
        return Manifest.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; import files with `emads import`") from None
    except ValidationError:
        raise UserError(f"{path} is damaged; import the files again into another folder") from None


def _write_folder(out: Path, manifest: Manifest, shards: dict[str, bytes], report: ImportReport) -> None:
    _require_own_folder(out, manifest)
    _write_manifest(out, manifest)
    for path, content in shards.items():
        (out / path).parent.mkdir(exist_ok=True)
        write_atomic(out / path, content)
    lines = [json.dumps(asdict(rejection)) + "\n" for rejection in report.rejections]
    write_atomic(out / REJECTED, "".join(lines).encode())
    write_atomic(out / CARD, _write_card(manifest.name, report).encode())
    digests = {path: hashlib.sha256(content).hexdigest() for path, content in shards.items()}
    _write_manifest(out, manifest.model_copy(update={"shards": digests}))


def _write_manifest(out: Path, manifest: Manifest) -> None:
    write_atomic(out / MANIFEST, encode_json(manifest.model_dump(mode="json")))


def _require_own_folder(out: Path, manifest: Manifest) -> None:
    if (out / MANIFEST).exists():
        if _read_manifest(out).model_copy(update={"shards": None}) != manifest:
            raise UserError(f"{out} already holds another import; choose another --out")
    elif any(out.iterdir()):
        raise UserError(f"{out} already holds other files; choose another --out")


def _write_card(name: str, report: ImportReport) -> str:
    files = [
        {"split": split, "path": f"{name}/{split}-*.parquet"}
        for split in ("train", "validation")
        if report.num_rows[split]
    ]
    header = yaml.safe_dump({"configs": [{"config_name": name, "data_files": files}]}, sort_keys=False)
    text = _TEXT.format(name=name, counts=_count(report), num_rejected=len(report.rejections))
    return f"---\n{header}---\n{text}"


def _count(report: ImportReport) -> str:
    total = sum(report.num_rows.values())
    return f"{total} tasks ({', '.join(f'{count} {split}' for split, count in report.num_rows.items())})"


def _read_shard(path: Path, digest: str) -> list[Row]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; import the files again") from None
    if hashlib.sha256(content).hexdigest() != digest:
        raise UserError(f"{path} is damaged (its sha256 is not that of {MANIFEST}); import the files again")
    rows: list[Row] = pq.read_table(pa.BufferReader(content)).to_pylist()
    return rows

"""Data folders: Parquet shards of verified demonstrations, resumable and byte-identical for equal requests.

dataset.json            what the shards are, with their sha256; written after each shard
README.md               the data card; `datasets.load_dataset(folder, "cto")` reads its header
cto/train-00000.parquet one shard: SCENARIOS_PER_SHARD scenarios
"""

import hashlib
import io
import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.parquet as pq

from roles.errors import UserError, unknown
from scenarios.base import MAX_DIFFICULTY, MIN_DIFFICULTY, SPLITS, Split
from training.data import difficulty_of
from training.data_card import write_card
from training.dataset_index import DatasetIndex, Shard, read_index, write_index
from training.dataset_rows import COLUMNS, build_rows, check_families
from training.progress import progress
from training.storage import explain_os_errors, write_atomic

SCENARIOS_PER_SHARD = 1000
SCHEMA = pa.schema([(name, pa.string() if kind is str else pa.int64()) for name, kind in COLUMNS.items()])


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardTask:
    """A shard that is to be written. Example: see Shard."""

    family: str
    split: Split
    seed: int
    difficulties: tuple[int, ...]
    number: int
    num_scenarios: int

    @property
    def path(self) -> str:
        return f"{self.family}/{self.split}-{self.number:05d}.parquet"


def generate_folder(
    families: Sequence[str],
    count: int,
    out: Path,
    *,
    seed: int = 0,
    difficulties: Sequence[int] = (1, 2),
    split: str = "train",
    processes: int = 1,
) -> DatasetIndex:
    """Write `count` scenarios of each family (none named: all) to `out`; finished shards are kept.

    Raises:
        UserError: bad arguments, a folder that holds other data under these names, not writable, disk full.
    """
    families = check_families(families)
    checked_split = _check_request(count, seed, difficulties, split, processes)
    tasks = [
        task for family in families for task in _plan(family, checked_split, count, seed, tuple(difficulties))
    ]
    shards = {shard.path: shard for shard in read_index(out).shards}
    _check_same_request(out, tasks, shards)
    missing = [task for task in tasks if not _is_complete(out, task, shards.get(task.path))]
    with explain_os_errors("write data folder", out):
        for family in families:
            (out / family).mkdir(parents=True, exist_ok=True)
        write_index(out, shards)
        with progress("generate", total=sum(task.num_scenarios for task in missing)) as bar:
            for shard in _write_shards(out, missing, processes):
                shards[shard.path] = shard
                write_index(out, shards)
                bar.advance(shard.num_scenarios)
        write_card(out, read_index(out))
    return read_index(out)


def write_shard(out: Path, task: ShardTask) -> Shard:
    """Generate one shard and write it atomically; equal tasks give equal bytes."""
    start = task.number * SCENARIOS_PER_SHARD
    rows = [
        row
        for index in range(start, start + task.num_scenarios)
        for row in build_rows(
            task.family, task.split, task.seed, index, difficulty_of(index, task.difficulties)
        )
    ]
    buffer = io.BytesIO()
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    pq.write_table(table, buffer, compression="zstd", write_page_checksum=True)
    content = buffer.getvalue()
    with explain_os_errors("write", out / task.path):
        write_atomic(out / task.path, content)
    return Shard(
        path=task.path,
        family=task.family,
        split=task.split,
        seed=task.seed,
        difficulties=task.difficulties,
        start=start,
        num_scenarios=task.num_scenarios,
        num_rows=len(rows),
        sha256=hashlib.sha256(content).hexdigest(),
    )


def _check_request(count: int, seed: int, difficulties: Sequence[int], split: str, processes: int) -> Split:
    if count < 1:
        raise UserError(f"count {count} must be 1 or more")
    if seed < 0:
        raise UserError(f"seed {seed} must be 0 or more")
    if processes < 1:
        raise UserError(f"processes {processes} must be 1 or more")
    if not difficulties or len(set(difficulties)) != len(difficulties):
        raise UserError(f"difficulties {list(difficulties)} must be one or more different numbers")
    for difficulty in difficulties:
        if not MIN_DIFFICULTY <= difficulty <= MAX_DIFFICULTY:
            raise UserError(f"difficulty {difficulty} must be {MIN_DIFFICULTY} to {MAX_DIFFICULTY}")
    if split not in SPLITS:
        raise unknown("split", split, list(SPLITS))
    return cast(Split, split)


def _plan(
    family: str, split: Split, count: int, seed: int, difficulties: tuple[int, ...]
) -> Iterator[ShardTask]:
    for number, start in enumerate(range(0, count, SCENARIOS_PER_SHARD)):
        yield ShardTask(
            family=family,
            split=split,
            seed=seed,
            difficulties=difficulties,
            number=number,
            num_scenarios=min(SCENARIOS_PER_SHARD, count - start),
        )


def _check_same_request(out: Path, tasks: Sequence[ShardTask], shards: dict[str, Shard]) -> None:
    """A folder may grow (more scenarios, families, splits) but never mixes seeds or loses scenarios."""
    planned = {task.path: task for task in tasks}
    requested = {(task.family, task.split): task for task in tasks}
    for shard in shards.values():
        request = requested.get((shard.family, shard.split))
        if request is None:
            continue
        if (shard.seed, shard.difficulties) != (request.seed, request.difficulties):
            raise UserError(
                f"{out} already holds {shard.family}/{shard.split} of seed {shard.seed} and difficulties"
                f" {list(shard.difficulties)}; choose another --out"
            )
        task = planned.get(shard.path)
        if task is None or task.num_scenarios < shard.num_scenarios:
            raise UserError(
                f"{out} already holds more {shard.family}/{shard.split} scenarios than asked for;"
                " choose another --out or a larger --count"
            )


def _is_complete(out: Path, task: ShardTask, shard: Shard | None) -> bool:
    if shard is None or shard.num_scenarios != task.num_scenarios:
        return False
    path = out / task.path
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == shard.sha256


def _write_shards(out: Path, tasks: Sequence[ShardTask], processes: int) -> Iterator[Shard]:
    if processes == 1 or len(tasks) <= 1:
        for task in tasks:
            yield write_shard(out, task)
        return
    context = multiprocessing.get_context("spawn")  # fork is unsafe beside library threads
    with ProcessPoolExecutor(min(processes, len(tasks)), mp_context=context) as pool:
        pending = [pool.submit(write_shard, out, task) for task in tasks]
        try:
            for done in as_completed(pending):
                yield done.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise

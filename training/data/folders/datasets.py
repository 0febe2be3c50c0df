"""Data folders: Parquet shards of verified demonstrations, resumable and byte-identical for equal requests.

dataset.json            what the shards are, with their sha256; written after each shard
README.md               the data card; `datasets.load_dataset(folder, "cto")` reads its header
cto/train-00000.parquet one shard: SCENARIOS_PER_SHARD scenarios

A stream is read in index order, repeats are left out (near_duplicates.py), and drawing goes on until `count`
different scenarios are there. So a shard depends on the request alone.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from roles.errors import UserError
from simulator.export.atomic_files import claim_folder, explain_os_errors, remove_leftovers, write_atomic
from training.data.folders.blocks import SCENARIOS_PER_BLOCK, Block, BlockMap, DrawnScenario, open_block_map
from training.data.folders.card import write_card
from training.data.folders.columns import encode_shard
from training.data.folders.index import DatasetIndex, OracleShard
from training.data.folders.near_duplicates import Repeat, RepeatFilter
from training.data.folders.requests import (
    Request,
    check_request,
    check_same_request,
    check_sector,
    make_requests,
)
from training.data.folders.rows import check_families
from training.runs.progress import Progress, progress

WORTH_A_POOL = 500  # scenarios from which worker processes start by default


def generate_folder(
    families: Sequence[str],
    count: int,
    out: Path,
    *,
    seed: int = 0,
    difficulties: Sequence[int] = (1, 2),
    split: str = "train",
    processes: int | None = None,
    sector: str | None = None,
    unseal: bool = False,
) -> DatasetIndex:
    """Write `count` scenarios of each family (none named: all) to `out`; finished shards are kept.

    `processes` None uses every core where that pays. Every optimum is checked by a second method.
    `sector` takes the cases of one sector and passes over the others.
    The test split needs `unseal`; the card's command states it.

    Raises:
        UserError: bad arguments, a folder that holds other data under these names or that another process
            writes to, not writable, disk full, or a family with fewer different scenarios than asked for.
        OracleDisagreementError: the two methods disagree about an optimum.
    """
    families = check_families(families)
    checked_split = check_request(count, seed, difficulties, split, processes, unseal=unseal)
    check_sector(families, sector)
    requests = make_requests(families, checked_split, seed, difficulties, count=count, sector=sector)
    check_same_request(out, requests)
    with explain_os_errors("write data folder", out):
        out.mkdir(parents=True, exist_ok=True)
        with claim_folder(out):
            remove_leftovers(out)
            _write_folder(out, requests, processes)
    return DatasetIndex.read(out)


def summarise_folder(index: DatasetIndex) -> str:
    """One line: what is there, and what was left out."""
    num_repeats = sum(shard.num_exact_repeats + shard.num_near_repeats for shard in index.shards)
    is_certified = all(shard.certified for shard in index.shards)
    return (
        f"{sum(shard.num_scenarios for shard in index.shards)} scenarios,"
        f" {sum(shard.num_rows for shard in index.shards)} rows in {len(index.shards)} shards;"
        f" {num_repeats} repeats left out;"
        f" {'0 oracle disagreements' if is_certified else 'not every optimum was checked'}"
    )


def _write_folder(out: Path, requests: Sequence[Request], processes: int | None) -> None:
    shards = DatasetIndex.read(out).by_path()
    for request in requests:
        (out / request.family).mkdir(exist_ok=True)
        remove_leftovers(out / request.family)
    _write_index(out, shards)
    missing = [request for request in requests if _count_complete(out, request, shards) < request.num_shards]
    num_scenarios = sum(request.count for request in missing)
    if processes is None:
        processes = len(os.sched_getaffinity(0)) if num_scenarios >= WORTH_A_POOL else 1
    shown = progress("generate", total=num_scenarios, unit="scenarios")
    with open_block_map(processes) as block_map, shown as bar:
        for request in missing:
            complete = {
                number: shards[request.path(number)]
                for number in range(request.num_shards)
                if _is_complete(out, request, number, shards)
            }
            for shard in _write_missing(out, request, complete, block_map, bar):
                shards[shard.path] = shard
                _write_index(out, shards)
    write_card(out, DatasetIndex.read(out))


def _write_index(out: Path, shards: dict[str, OracleShard]) -> None:
    DatasetIndex(format=DatasetIndex.FORMAT).with_shards(shards).write(out)


def _write_missing(
    out: Path, request: Request, complete: dict[int, OracleShard], block_map: BlockMap, bar: Progress
) -> Iterator[OracleShard]:
    """The shards of a request that are not complete, each as soon as it is on the disk."""
    finished = [range(shard.start, shard.stop) for shard in complete.values()]
    repeats = RepeatFilter(request.load)
    number = start = 0
    kept: list[DrawnScenario] = []
    dropped: list[Repeat] = []
    for made in _draw(request, finished, block_map, bar, repeats, dropped):
        kept.append(made)
        if len(kept) < request.num_scenarios(number):
            continue
        stop = made.index + 1
        if number not in complete:
            yield _write_shard(out, request, number, range(start, stop), kept, dropped)
        elif complete[number].stop != stop:
            raise UserError(f"{out}: dataset.json is wrong about {request.path(number)}; delete that file")
        number, start = number + 1, stop
        kept.clear()
        dropped.clear()


def _draw(
    request: Request,
    finished: Sequence[range],
    block_map: BlockMap,
    bar: Progress,
    repeats: RepeatFilter,
    dropped: list[Repeat],
) -> Iterator[DrawnScenario]:
    """The first `count` different scenarios; `dropped` gets the repeats before each."""
    num_kept = index = 0
    while num_kept < request.count:
        stop = index + (request.count - num_kept) * request.stride
        for block in block_map(_cut_blocks(request, index, stop, finished)):
            num_before = num_kept
            for made in block:
                repeat = repeats.find_repeat(made.index, made.fingerprint)
                if repeat is not None:
                    dropped.append(repeat)
                    continue
                num_kept += 1
                yield made
                if num_kept == request.count:
                    break
            bar.advance(num_kept - num_before)
            if num_kept == request.count:
                return
        index = stop
        if index > (2 * request.count + SCENARIOS_PER_BLOCK) * request.stride:
            raise UserError(
                f"{request.family}/{request.split} at difficulties {list(request.difficulties)} has only"
                f" {num_kept} different scenarios among its first {index}; ask for fewer with --count"
            )


def _cut_blocks(request: Request, start: int, stop: int, finished: Sequence[range]) -> Iterator[Block]:
    length = SCENARIOS_PER_BLOCK * request.stride
    for first in range(start, stop, length):
        last = min(first + length, stop) - 1
        yield Block(
            family=request.family,
            split=request.split,
            seed=request.seed,
            difficulties=request.difficulties,
            start=first,
            stop=last + 1,
            sector=request.sector,
            with_rows=not all(any(index in span for span in finished) for index in range(first, last + 1)),
        )


def _write_shard(
    out: Path,
    request: Request,
    number: int,
    span: range,
    kept: Sequence[DrawnScenario],
    dropped: Sequence[Repeat],
) -> OracleShard:
    """Write one shard atomically; equal scenarios give equal bytes."""
    rows = [row for made in kept for row in made.rows]
    content = encode_shard(rows)
    path = request.path(number)
    with explain_os_errors("write", out / path):
        write_atomic(out / path, content)
    return OracleShard(
        path=path,
        family=request.family,
        split=request.split,
        seed=request.seed,
        difficulties=request.difficulties,
        generator=request.generator,
        certified=True,
        sector=request.sector,
        start=span.start,
        stop=span.stop,
        num_scenarios=len(kept),
        num_exact_repeats=dropped.count("exact"),
        num_near_repeats=dropped.count("near"),
        num_rows=len(rows),
        sha256=hashlib.sha256(content).hexdigest(),
    )


def _is_complete(out: Path, request: Request, number: int, shards: dict[str, OracleShard]) -> bool:
    shard = shards.get(request.path(number))
    if shard is None or shard.num_scenarios != request.num_scenarios(number):
        return False
    return shard.certified and shard.is_sound(out)


def _count_complete(out: Path, request: Request, shards: dict[str, OracleShard]) -> int:
    return sum(_is_complete(out, request, number, shards) for number in range(request.num_shards))

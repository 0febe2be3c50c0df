"""Data folders: Parquet shards of verified demonstrations, byte-identical for equal requests.

dataset.json            what the shards are, with their sha256; written after each shard
README.md               the data card; `datasets.load_dataset(folder, "cto")` reads its header
cto/train-00000.parquet one shard: SCENARIOS_PER_SHARD scenarios

A stream is read in index order, repeats are left out (near_duplicates.py), and drawing goes on until `count`
different scenarios are there. So a shard depends on the request alone: sound shards of an earlier call are
kept, and neither the number nor the timing of worker processes shows in the bytes.
"""

import hashlib
import json
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import cast

from roles.errors import UserError, unknown
from scenarios.base import MAX_DIFFICULTY, MIN_DIFFICULTY, NEW_SECTORS, SEALED, SPLITS, Split
from scenarios.company.sectors import SECTORS
from simulator.export.atomic_files import claim_folder, explain_os_errors, remove_leftovers, write_atomic
from training.data.demonstrations import difficulty_of
from training.data.folders.card import write_card
from training.data.folders.index import DatasetIndex, OracleShard, TeacherIndex, TeacherShard
from training.data.folders.near_duplicates import Case, Fingerprint, Repeat, RepeatFilter, compute_fingerprint
from training.data.folders.rows import (
    Row,
    build_rows,
    check_families,
    describe_case,
    encode_shard,
    find_sector_rule,
    generate_case,
    require_certificate,
)
from training.runs.progress import Progress, progress
from training.runs.workers import leave_with_parent

SCENARIOS_PER_SHARD = 1000
SCENARIOS_PER_BLOCK = 50
BLOCKS_AHEAD = 4  # per worker: enough to keep it busy, few enough to hold in memory
WORTH_A_POOL = 500  # scenarios from which worker processes start by default
NUM_PROBES = 3  # scenarios per difficulty that tell one version of a generator from another


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyRequest:
    """Scenarios of one family that are asked for.

    Example: FamilyRequest(family="cto", split="train", seed=0, difficulties=(1,), generator="5c", count=9)
    """

    family: str
    split: Split
    seed: int
    difficulties: tuple[int, ...]
    generator: str  # digest of what the family's generator makes
    sector: str | None = None  # only cases of this sector; None: of all
    count: int  # scenarios, repeats not counted

    @property
    def num_shards(self) -> int:
        return -(-self.count // SCENARIOS_PER_SHARD)

    @property
    def stride(self) -> int:
        """Indices per case that is wanted, about."""
        return 1 if self.sector is None else len(SECTORS)

    def path(self, number: int) -> str:
        return f"{self.family}/{self.split}-{number:05d}.parquet"

    def num_scenarios(self, number: int) -> int:
        """Scenarios of a shard; 0 behind the last."""
        return max(0, min(SCENARIOS_PER_SHARD, self.count - number * SCENARIOS_PER_SHARD))

    def load(self, index: int) -> Case:
        difficulty = difficulty_of(index, self.difficulties)
        return generate_case(self.family, self.split, self.seed, index, difficulty)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnScenario:
    """A scenario of a request. Example: DrawnScenario(index=50, fingerprint=..., rows=({...},))"""

    index: int
    fingerprint: Fingerprint
    rows: tuple[Row, ...]


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
    """Write `count` scenarios of each family (none named: all) to `out`; sound shards there are kept.

    `processes` None uses every core where that pays. Every optimum is checked by a second method.
    `sector` takes the cases of one sector and passes over the others.
    The test split needs `unseal`; the card's command states it.

    Raises:
        UserError: bad arguments, a folder that holds other data under these names or that another process
            writes to, not writable, disk full, or a family with fewer different scenarios than asked for.
        OracleDisagreementError: the two methods disagree about an optimum.
    """
    if processes is not None and processes < 1:
        raise UserError(f"processes {processes} must be 1 or more")
    requests = make_requests(families, count, seed, difficulties, split, sector=sector, unseal=unseal)
    _check_same_request(out, requests)
    with explain_os_errors("write data folder", out), claim_folder(out, "data folder"):
        remove_leftovers(out)
        _write_folder(out, requests, processes)
    return DatasetIndex.read(out)


def summarise_folder(index: DatasetIndex) -> str:
    """One line: what is there, and what was left out."""
    num_repeats = sum(shard.num_exact_repeats + shard.num_near_repeats for shard in index.shards)
    return (
        f"{sum(shard.num_scenarios for shard in index.shards)} scenarios,"
        f" {sum(shard.num_rows for shard in index.shards)} rows in {len(index.shards)} shards;"
        f" {num_repeats} repeats left out; 0 oracle disagreements"
    )


def make_requests(
    families: Sequence[str],
    count: int,
    seed: int,
    difficulties: Sequence[int],
    split: str,
    *,
    sector: str | None = None,
    unseal: bool = False,
) -> list[FamilyRequest]:
    """One request per family, each with the digest of its present generator.

    Raises:
        UserError: an argument out of range, repeated or unknown; the test split without `unseal`; a sector of
            families whose cases play in none.
    """
    chosen = check_families(families)
    for name, value, least in (("count", count, 1), ("seed", seed, 0)):
        if value < least:
            raise UserError(f"{name} {value} must be {least} or more")
    if not difficulties or len(set(difficulties)) != len(difficulties):
        raise UserError(f"difficulties {list(difficulties)} must be one or more different numbers")
    for difficulty in difficulties:
        if not MIN_DIFFICULTY <= difficulty <= MAX_DIFFICULTY:
            raise UserError(f"difficulty {difficulty} must be {MIN_DIFFICULTY} to {MAX_DIFFICULTY}")
    if split not in SPLITS:
        raise unknown("split", split, list(SPLITS))
    if split in SEALED and not unseal:
        raise UserError(
            f"the {split} split is sealed: rows with its answers spoil the evaluation of what is trained on "
            "them; use train or validation, or give --unseal"
        )
    in_split = [name for name, about in SECTORS.items() if about.held_out == (split == NEW_SECTORS)]
    if sector is not None and sector not in in_split:
        raise unknown(f"sector of the split {split}" if sector in SECTORS else "sector", sector, in_split)
    for family in chosen:
        if sector is not None and find_sector_rule(family) is None:
            raise UserError(f"the cases of {family} play in no sector; leave --sector or this family out")
    return [
        FamilyRequest(
            family=family,
            split=cast(Split, split),
            seed=seed,
            difficulties=tuple(difficulties),
            generator=compute_generator_digest(family, difficulties),
            sector=sector,
            count=count,
        )
        for family in chosen
    ]


def compute_generator_digest(family: str, difficulties: Sequence[int]) -> str:
    """sha256 over the rows of the first training scenarios at these difficulties.

    It changes with whatever the family's generator, oracle, tools or demonstrations write there.
    """
    rows = [
        build_rows(family, "train", 0, index, difficulty)
        for difficulty in difficulties
        for index in range(NUM_PROBES)
    ]
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()


def refuse_loss(out: Path, shard: OracleShard | TeacherShard, request: FamilyRequest) -> None:
    """Refuse, with a UserError, fewer scenarios than a shard of the family and split holds."""
    numbers = {request.path(number): number for number in range(request.num_shards)}
    if request.num_scenarios(numbers.get(shard.path, request.num_shards)) < shard.num_scenarios:
        raise UserError(
            f"{out} already holds more {shard.family}/{shard.split} scenarios than asked for;"
            " choose another --out or a larger --count"
        )


def _check_same_request(out: Path, requests: Sequence[FamilyRequest]) -> None:
    """A folder may grow (more scenarios, families, splits) but never mixes seeds or loses scenarios."""
    if (out / TeacherIndex.FILE).exists():
        raise UserError(f"{out} holds demonstrations of a teacher; choose another --out")
    requested = {(request.family, request.split): request for request in requests}
    for shard in DatasetIndex.read(out).shards:
        request = requested.get((shard.family, shard.split))
        if request is None:
            continue
        if (shard.seed, shard.difficulties, shard.sector) != (
            request.seed,
            request.difficulties,
            request.sector,
        ):
            raise UserError(
                f"{out} already holds {shard.family}/{shard.split} of seed {shard.seed}, difficulties"
                f" {list(shard.difficulties)} and sector {shard.sector or 'all'}; choose another --out"
            )
        if shard.generator != request.generator:
            raise UserError(
                f"{out} already holds {shard.family}/{shard.split} of another version of its generator;"
                " choose another --out"
            )
        refuse_loss(out, shard, request)


def _write_folder(out: Path, requests: Sequence[FamilyRequest], processes: int | None) -> None:
    shards = DatasetIndex.read(out).by_path()
    for request in requests:
        remove_leftovers(out / request.family)
    DatasetIndex.of(shards).write(out)
    unfinished = [
        request
        for request in requests
        if not all(_is_complete(out, request, number, shards) for number in range(request.num_shards))
    ]
    num_scenarios = sum(request.count for request in unfinished)
    if processes is None:
        processes = len(os.sched_getaffinity(0)) if num_scenarios >= WORTH_A_POOL else 1
    shown = progress("generate", total=num_scenarios, unit="scenarios")
    with open_map(processes) as map_blocks, shown as bar:
        for request in unfinished:
            for shard in _write_missing(out, request, shards, map_blocks, bar):
                shards[shard.path] = shard
                DatasetIndex.of(shards).write(out)
    write_card(out, DatasetIndex.read(out))


def _is_complete(out: Path, request: FamilyRequest, number: int, shards: dict[str, OracleShard]) -> bool:
    shard = shards.get(request.path(number))
    if shard is None or shard.num_scenarios != request.num_scenarios(number):
        return False
    return shard.is_sound(out)


def _write_missing(
    out: Path, request: FamilyRequest, shards: dict[str, OracleShard], map_blocks: "MapBlocks", bar: Progress
) -> Iterator[OracleShard]:
    """Draw a request's scenarios and yield each shard that was not complete, once it is on the disk."""
    number = start = 0
    kept: list[DrawnScenario] = []
    dropped: list[Repeat] = []
    for made in draw_different(request, map_blocks, dropped):
        kept.append(made)
        bar.advance(1)
        if len(kept) < request.num_scenarios(number):
            continue
        stop, known = made.index + 1, shards.get(request.path(number))
        if known is None or not _is_complete(out, request, number, shards):
            yield _write_shard(out, request, number, range(start, stop), kept, dropped)
        elif known.stop != stop:
            raise UserError(f"{out}: dataset.json is wrong about {request.path(number)}; delete that file")
        number, start = number + 1, stop
        kept.clear()
        dropped.clear()


def draw_different(
    request: FamilyRequest, map_blocks: "MapBlocks", dropped: list[Repeat]
) -> Iterator[DrawnScenario]:
    """The first `count` different scenarios in index order; `dropped` gets the repeats before each.

    Raises:
        UserError: too few of them.
        OracleDisagreementError: two methods disagree about an optimum.
    """
    repeats = RepeatFilter(request.load)
    num_kept = index = 0
    while num_kept < request.count:
        stop = index + (request.count - num_kept) * request.stride
        length = SCENARIOS_PER_BLOCK * request.stride
        blocks = (range(first, min(first + length, stop)) for first in range(index, stop, length))
        for block in map_blocks(request, blocks):
            for made in block:
                repeat = repeats.find_repeat(made.index, made.fingerprint)
                if repeat is not None:
                    dropped.append(repeat)
                elif num_kept < request.count:
                    num_kept += 1
                    yield made
            if num_kept == request.count:
                return
        index = stop
        if index > (2 * request.count + SCENARIOS_PER_BLOCK) * request.stride:
            raise UserError(
                f"{request.family}/{request.split} at difficulties {list(request.difficulties)} has only"
                f" {num_kept} different scenarios among its first {index}; ask for fewer with --count"
            )


def draw_block(request: FamilyRequest, indices: range) -> list[DrawnScenario]:
    """Generate, certify and describe the scenarios of these indices, those of the request's sector alone."""
    drawn = []
    find_sector = find_sector_rule(request.family) if request.sector is not None else None
    for index in indices:
        difficulty = difficulty_of(index, request.difficulties)
        if find_sector and find_sector(request.split, request.seed, index, difficulty) != request.sector:
            continue
        case = request.load(index)
        require_certificate(case)
        rows = tuple(describe_case(case))
        drawn.append(DrawnScenario(index=index, fingerprint=compute_fingerprint(case), rows=rows))
    return drawn


def draw_here(request: FamilyRequest, blocks: Iterable[range]) -> Iterator[list[DrawnScenario]]:
    """Draw blocks one after another in this process."""
    return (draw_block(request, block) for block in blocks)


# in the order of the blocks
MapBlocks = Callable[[FamilyRequest, Iterable[range]], Iterator[list[DrawnScenario]]]


@contextmanager
def open_map(num_processes: int) -> Iterator[MapBlocks]:
    """A `map` of `draw_block` over `num_processes` processes; 1 works in this process.

    Raises:
        UserError: a worker died (killed, out of memory).
    """
    if num_processes == 1:
        yield draw_here
        return
    context = get_context("spawn")  # fork is unsafe beside library threads
    pool = ProcessPoolExecutor(num_processes, mp_context=context, initializer=_start_worker)

    def map_in_order(request: FamilyRequest, blocks: Iterable[range]) -> Iterator[list[DrawnScenario]]:
        waiting: deque[Future[list[DrawnScenario]]] = deque()
        for block in blocks:
            waiting.append(pool.submit(draw_block, request, block))
            if len(waiting) > BLOCKS_AHEAD * num_processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    try:
        yield map_in_order
    except BrokenProcessPool:
        raise UserError(
            "a worker process died (killed, or out of memory); run the same command again to go on,"
            " with fewer --processes if memory was short"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _start_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops its workers
    threading.Thread(target=leave_with_parent, daemon=True).start()


def _write_shard(
    out: Path,
    request: FamilyRequest,
    number: int,
    span: range,
    kept: Sequence[DrawnScenario],
    dropped: Sequence[Repeat],
) -> OracleShard:
    """Write one shard atomically; equal scenarios give equal bytes."""
    rows = [row for made in kept for row in made.rows]
    content, path = encode_shard(rows), request.path(number)
    with explain_os_errors("write", out / path):
        write_atomic(out / path, content)
    stream = asdict(request)
    del stream["count"]
    return OracleShard(
        **stream,
        path=path,
        start=span.start,
        stop=span.stop,
        num_scenarios=len(kept),
        num_exact_repeats=dropped.count("exact"),
        num_near_repeats=dropped.count("near"),
        num_rows=len(rows),
        sha256=hashlib.sha256(content).hexdigest(),
    )

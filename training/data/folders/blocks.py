"""Blocks of consecutive scenarios, drawn in worker processes and handed back in index order.

A block's content is a pure function of the block: neither number nor timing of workers shows in it.
"""

import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context

from roles.errors import UserError
from scenarios.base import Split
from training.data.demonstrations import difficulty_of
from training.data.folders.near_duplicates import Fingerprint, compute_fingerprint
from training.data.folders.rows import (
    Row,
    describe_case,
    find_sector_rule,
    generate_case,
    require_certificate,
)
from training.runs.workers import leave_with_parent

SCENARIOS_PER_BLOCK = 50
BLOCKS_AHEAD = 4  # per worker: enough to keep it busy, few enough to hold in memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Scenarios `start` to `stop` - 1 of one stream.

    Example: Block(family="cto", split="train", seed=0, difficulties=(1, 2), start=50, stop=100,
                   sector=None, with_rows=True)
    """

    family: str
    split: Split
    seed: int
    difficulties: tuple[int, ...]
    start: int
    stop: int
    sector: str | None  # cases of others are passed over; None: all are taken
    with_rows: bool  # False: fingerprints only, for scenarios whose shard is there already


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnScenario:
    """A scenario of a block. Example: DrawnScenario(index=50, fingerprint=Fingerprint(...), rows=({...},))"""

    index: int
    fingerprint: Fingerprint
    rows: tuple[Row, ...]  # empty without rows


def draw_block(block: Block) -> list[DrawnScenario]:
    """Generate, certify and describe the scenarios of a block.

    Raises:
        OracleDisagreementError: two methods disagree about an optimum.
    """
    drawn = []
    find_sector = find_sector_rule(block.family) if block.sector is not None else None
    for index in range(block.start, block.stop):
        difficulty = difficulty_of(index, block.difficulties)
        if find_sector and find_sector(block.split, block.seed, index, difficulty) != block.sector:
            continue
        case = generate_case(block.family, block.split, block.seed, index, difficulty)
        if block.with_rows:
            require_certificate(case)
        rows = tuple(describe_case(case)) if block.with_rows else ()
        drawn.append(DrawnScenario(index=index, fingerprint=compute_fingerprint(case), rows=rows))
    return drawn


BlockMap = Callable[[Iterable[Block]], Iterator[list[DrawnScenario]]]  # results in the order of the blocks


@contextmanager
def open_block_map(num_processes: int) -> Iterator[BlockMap]:
    """A `map` of `draw_block` over so many processes; 1 works in this one.

    Raises:
        UserError: a worker died (killed, out of memory).
    """
    if num_processes == 1:
        yield lambda blocks: map(draw_block, blocks)
        return
    context = get_context("spawn")  # fork is unsafe beside library threads
    pool = ProcessPoolExecutor(num_processes, mp_context=context, initializer=_start_worker)
    try:
        yield lambda blocks: _map_in_order(pool, blocks, BLOCKS_AHEAD * num_processes)
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


def _map_in_order(
    pool: ProcessPoolExecutor, blocks: Iterable[Block], num_ahead: int
) -> Iterator[list[DrawnScenario]]:
    waiting: deque[Future[list[DrawnScenario]]] = deque()
    for block in blocks:
        waiting.append(pool.submit(draw_block, block))
        if len(waiting) > num_ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()

"""Many episodes at once: after a failure nothing is left running, and garbage collection is rare meanwhile.

The interpreter collects after 700 new objects. Thousands of live episodes hold millions that are all in use;
looking at them again and again took more time than the episodes themselves.
"""

import asyncio
import gc
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from roles.errors import InfrastructureError

T = TypeVar("T")
Work = Coroutine[Any, Any, T]
OBJECTS_PER_EPISODE = 1_000  # about what one in flight holds
FEWEST, MOST = 50_000, 2_000_000  # new objects between two collections

_before: list[tuple[int, int, int]] = []  # the limits found by each who is inside, the first one's first


async def run_all(work: Iterable[Work[T]]) -> list[T]:
    """Run everything at once; results in the order of `work`.

    The first failure cancels the rest, waits for them, and is raised as itself (no ExceptionGroup).
    Where several fail together, one of our own bugs goes before an InfrastructureError.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in work]
    except BaseExceptionGroup as failures:
        raise min(failures.exceptions, key=lambda error: isinstance(error, InfrastructureError)) from None
    return [task.result() for task in tasks]


async def run_pool(jobs: Sequence[Callable[[], Work[T]]], *, concurrency: int) -> list[T]:
    """Run at most `concurrency` jobs at a time, started in their order; results in the order of `jobs`.

    Raises:
        ValueError: concurrency < 1.
    """
    if concurrency < 1:
        raise ValueError(f"concurrency must be >= 1, got {concurrency}")
    results: dict[int, T] = {}
    waiting = iter(enumerate(jobs))

    async def work_off() -> None:
        for position, job in waiting:
            results[position] = await job()

    await run_all(work_off() for _ in range(min(concurrency, len(jobs))))
    return [results[position] for position in range(len(jobs))]


@contextmanager
def deferred_garbage_collection(in_flight: int) -> Iterator[None]:
    """Collect when new objects outnumber those that `in_flight` episodes hold; older objects stay unseen.

    May be nested. Limits that are wider already stay, and a collector that is off stays off.
    """
    _before.append(gc.get_threshold())
    if len(_before) == 1:
        gc.freeze()
    young, wanted = gc.get_threshold()[0], min(MOST, max(FEWEST, OBJECTS_PER_EPISODE * in_flight))
    if 0 < young < wanted:
        gc.set_threshold(wanted, 10, 10)
    try:
        yield
    finally:
        first = _before[0]
        _before.pop()
        if not _before:
            gc.set_threshold(*first)
            gc.unfreeze()

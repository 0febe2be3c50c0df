"""Structured concurrency: after a failure nothing is left running."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from roles.errors import InfrastructureError

T = TypeVar("T")
Work = Coroutine[Any, Any, T]


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

"""An event loop in a thread of its own, for clients that must outlive the caller's `asyncio.run`."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

Result = TypeVar("Result")


class LoopThread:
    """Runs coroutines in its thread, for callers in any other loop or in none.

    A caller that is cancelled cancels its coroutine there.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    async def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Await `work`, which runs in the thread."""
        return await asyncio.wrap_future(self.start(work))

    def call(self, work: Coroutine[Any, Any, Result], timeout_s: float | None = None) -> Result:
        """Wait for `work` from ordinary code.

        Raises:
            TimeoutError: it took longer; it is cancelled.
        """
        future = self.start(work)
        try:
            return future.result(timeout_s)
        except TimeoutError:
            future.cancel()
            raise

    def start(self, work: Coroutine[Any, Any, Result]) -> "Future[Result]":
        """Let `work` begin and do not wait."""
        if not self._thread.is_alive():
            work.close()
            raise RuntimeError(f"{self._thread.name} was closed")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """Cancel what is left and end the thread."""
        if not self._thread.is_alive():
            return
        asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        if not self._thread.is_alive():
            self._loop.close()


async def _cancel_others() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)

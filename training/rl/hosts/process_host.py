"""A rollout host in a process of its own on this machine, asked through a pipe."""

import asyncio
import multiprocessing
import os
import pickle
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any

from simulator.observer import counting_turns
from training.rl.hosts.host import RolloutHost
from training.rl.hosts.pool import HostLostError
from training.runs.memory import return_freed_memory
from training.runs.workers import TurnReports, enter_worker, report_turns

OpenHost = Callable[[], AbstractContextManager[RolloutHost]]
END_S = 5.0  # to leave by itself once it is told to
IDLE_S = 1.0  # without a call, until it gives back the memory that its plays took


@dataclass(frozen=True, slots=True)
class _Turns:
    """Sent before an answer: so many more turns were played."""

    count: int


class ProcessHost:
    """A RolloutHost in a spawned process; one call at a time."""

    def __init__(
        self, open_host: OpenHost, *, number: int = 0, num_threads: int = 1, gpus: Sequence[str] = ()
    ) -> None:
        """`open_host`: sent by reference, entered there. The process sees one of `gpus`, by its number."""
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=_serve, args=(theirs, open_host, number, num_threads, gpus), name=f"rollout-host-{number}"
        )
        self.process.start()
        theirs.close()  # so that the pipe ends with the process
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"rollout-host-{number}")
        self._is_busy = False

    async def start(self) -> None:
        await self._run(self._receive)

    async def call(self, method: str, *arguments: Any) -> Any:
        return await self._run(self._ask, method, arguments)

    def close(self) -> None:
        """Let an idle process leave; kill one that is at work or hangs."""
        if not self._is_busy:
            with suppress(OSError):
                self._pipe.send(None)
            self.process.join(END_S)
        self.process.kill()
        self.process.join()
        self._thread.shutdown(wait=True)
        self._pipe.close()

    async def _run(self, work: Callable[..., Any], *arguments: Any) -> Any:
        self._is_busy = True
        result = await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)
        self._is_busy = False  # not after an error or a timeout: it is of no more use then
        return result

    def _ask(self, method: str, arguments: tuple[Any, ...]) -> Any:
        try:
            self._pipe.send((method, arguments))
        except OSError:
            raise HostLostError(f"rollout host {self.process.pid} ended") from None
        return self._receive()

    def _receive(self) -> Any:
        try:
            while isinstance(answer := self._pipe.recv(), _Turns):
                report_turns(answer.count)
        except (EOFError, OSError):
            raise HostLostError(f"rollout host {self.process.pid} ended") from None
        failure, result = answer
        if failure is not None:
            raise failure
        return result


def _serve(pipe: Any, open_host: OpenHost, number: int, num_threads: int, gpus: Sequence[str]) -> None:
    """Answer calls until None comes: each with the failure, or with None and the result."""
    try:
        os.environ.pop("LOCAL_RANK", None)  # a rank's own: its host is none, and takes another GPU
        enter_worker(num_threads, gpus, number)
        turns = TurnReports(lambda count: pipe.send(_Turns(count)))
        with counting_turns(turns.note), open_host() as host:
            pipe.send((None, None))
            while (asked := _next_call(pipe)) is not None:
                method, arguments = asked
                try:
                    pipe.send((None, getattr(host, method)(*arguments)))
                except Exception as error:
                    pipe.send((_portable(error), None))
    except EOFError:  # the learner is gone
        return
    except Exception as error:
        pipe.send((_portable(error), None))


def _next_call(pipe: Any) -> Any:
    """Return the next call of the learner; while it waits for long, the host gives its freed memory back."""
    if not pipe.poll(IDLE_S):
        return_freed_memory()
    return pipe.recv()


def _portable(error: Exception) -> Exception:
    """The error with its traceback as a note; where it cannot be sent, another one with its text."""
    text = traceback.format_exc()
    error.add_note(f"in a rollout host:\n{text}")
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(text)
    return error

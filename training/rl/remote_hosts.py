"""A rollout host elsewhere: in a process of this machine, behind a pipe, or as an actor of a Ray cluster.

Ray (extra `ray`) does not restart an actor here: the pool starts another one and loads its weights, as with
processes.
"""

import asyncio
import multiprocessing
import os
import pickle
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from typing import Any

import torch

from roles.errors import UserError
from simulator.observer import counting_turns
from training.rl.hosts import HostLostError, RolloutHost
from training.runs.workers import TurnReports, enter_worker, report_turns, return_freed_memory

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


def join_cluster(address: str) -> None:
    """Connect this process to the cluster at `address`; `local` starts one here; once is enough.

    Raises:
        UserError: Ray is not installed, or no cluster answers.
    """
    try:
        import ray
    except ImportError:
        raise UserError("rollouts.ray needs Ray: pip install 'emads[ray]'") from None
    if ray.is_initialized():
        return
    # Ray's workers would give way to every other process of this machine (niceness 15)
    own: dict[str, Any] = {"_system_config": {"worker_niceness": 0}, "include_dashboard": False}
    try:
        ray.init(
            address=address,
            log_to_driver=False,
            configure_logging=False,
            **(own if address == "local" else {}),
        )
    except (ConnectionError, ValueError) as error:
        raise UserError(f"no Ray cluster at rollouts.ray {address!r}: {error}") from None


class HostActor:
    """Lives in the actor's process; answers while it plays, so that it can be asked whether it lives."""

    def __init__(self, open_host: OpenHost, num_threads: int) -> None:
        self._open_host, self._num_threads = open_host, num_threads
        self._opened = ExitStack()
        self._host: RolloutHost | None = None

    async def start(self) -> None:
        """Open the host."""
        torch.set_num_threads(self._num_threads)
        self._host = await asyncio.to_thread(self._opened.enter_context, self._open_host())

    async def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the host."""
        return await asyncio.to_thread(getattr(self._host, method), *arguments)


class RayHost:
    """A RolloutHost in a Ray actor."""

    def __init__(self, open_host: OpenHost, *, num_threads: int = 1, num_gpus: float = 0.0) -> None:
        """`open_host` is pickled: what it names must be importable on every machine of the cluster."""
        self._open_host, self._num_threads, self._num_gpus = open_host, num_threads, num_gpus
        self._actor: Any = None

    async def start(self) -> None:
        import ray

        options = {"num_cpus": self._num_threads, "num_gpus": self._num_gpus, "max_restarts": 0}
        actor_class: Any = ray.remote(HostActor)
        self._actor = actor_class.options(**options).remote(self._open_host, self._num_threads)
        await self._wait(self._actor.start.remote())

    async def call(self, method: str, *arguments: Any) -> Any:
        return await self._wait(self._actor.call.remote(method, *arguments))

    def close(self) -> None:
        import ray

        if self._actor is not None:
            ray.kill(self._actor)

    async def _wait(self, reference: Any) -> Any:
        from ray.exceptions import RayError, RayTaskError

        try:
            return await reference
        except RayTaskError as error:
            raise error.cause from error
        except RayError as error:  # killed, its machine gone, or by Ray itself where memory is short
            raise HostLostError(f"a Ray host ended: {error}") from None

"""Tasks with dependencies over a few worker processes, and progress that reaches the parent's display.

A worker keeps the memory that it frees: a step's tensors are given the pages of the step before.
"""

import atexit
import ctypes
import gc
import io
import math
import multiprocessing
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from simulator.observer import counting_turns
from training.runs.progress import progress
from training.runs.run_errors import WorkerLostError

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # of malloc.h
_MOST = 2**31 - 1


def keep_freed_memory() -> bool:
    """Let glibc keep what is freed; elsewhere nothing is done. Returns whether it does.

    By default every large tensor is mapped anew and each of its pages is zeroed by the kernel at first touch:
    on a virtual machine two fifths of the time of SmolLM2's SFT (docs/results/performance.md).
    """
    mallopt = _find("mallopt")
    return mallopt is not None and bool(mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, _MOST))


def return_freed_memory() -> bool:
    """Give what is free back to the system, where glibc keeps it. Returns whether any was given back.

    For a worker between two tasks: one that waits would hold the most that a task ever took.
    """
    gc.collect()
    trim = _find("malloc_trim")
    return trim is not None and bool(trim(0))


def _find(name: str) -> Callable[..., Any] | None:
    """Return a function of the C library; None where it has none of that name."""
    try:
        found: Callable[..., Any] = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):
        return None
    return found


def visible_gpus() -> list[str]:
    """The names by which CUDA_VISIBLE_DEVICES calls the GPUs of this process, without starting CUDA."""
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    return (named.split(",") if named else [str(place) for place in range(count)])[:count]


def spare_gpus() -> list[str]:
    """Those that the learners of this machine leave to rollout hosts; all where they leave none."""
    gpus = visible_gpus()
    return gpus[int(os.environ.get("LOCAL_WORLD_SIZE", "1")) :] or gpus


def claim_gpu(gpus: Sequence[str], worker: int) -> None:
    """Let this process see one of these GPUs alone; call it before anything is put on one."""
    if gpus and "LOCAL_RANK" not in os.environ:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[worker % len(gpus)]


QUIET_S = 120.0
TURNS_S = 30.0  # between reports of how many turns were played
Report = Callable[..., None]  # report(units done, **metrics shown)
_reports: Any = None  # the worker's end of the progress queue
_left: float = math.inf  # units of the task at hand that are not reported yet
_scale = 1.0  # units for what the task at hand reports as one
_stage = ""  # name of the task at hand, e.g. "sft/cto"
_num_turns = 0  # turns played for the task at hand, as far as they were reported


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One piece of work for a worker process.

    Example: Task(name="sft/cto", call=train_role, args=(path, "cto"), after=("base",), units=600)
    """

    name: str
    call: Callable[..., Any]  # a module-level function: it is sent by reference
    args: tuple[Any, ...] = ()
    after: tuple[str, ...] = ()  # names of tasks that must be finished first
    units: float = 1  # its share of the progress bar
    reports: float | None = None  # what it reports in all, if that is counted otherwise than `units`
    ranks: int = 1  # workers that perform it together, each told its place by the variables of torchrun


def _start_worker(
    reports: Any, num_threads: int, prepare: Callable[[], None] | None, gpus: Sequence[str], numbers: Any
) -> None:
    global _reports
    _reports = reports
    sys.stderr = LineSender(reports.put)
    enter_worker(num_threads, gpus, numbers.get())
    if prepare is not None:
        prepare()


class LineSender(io.TextIOBase):
    """Hands a worker's standard error to the main process in whole lines, which never meet the bar."""

    def __init__(self, send: Callable[[str], None]) -> None:
        self._send, self._open_line = send, ""

    def write(self, text: str) -> int:
        """Send the lines that end in this text."""
        *lines, self._open_line = (self._open_line + text).split("\n")
        for line in lines:
            self._send(line)
        return len(text)


def enter_worker(num_threads: int, gpus: Sequence[str], number: int) -> None:
    """Begin worker process `number`: its GPU, its threads, and an end with its parent or by Ctrl-C."""
    claim_gpu(gpus, number)
    atexit.register(os._exit, 0)  # gloo's threads may abort a process that is torn down
    keep_freed_memory()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends a worker without a traceback
    threading.Thread(target=leave_with_parent, daemon=True).start()
    import torch

    torch.set_num_threads(num_threads)


def leave_with_parent() -> None:
    """End this worker when its parent ends, even if it is killed: for a thread of the worker."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def report_progress(units: float, **metrics: float) -> None:
    """Report from inside a task that so many more units are done."""
    global _left
    units = min(units * _scale, _left)
    _left -= units
    if _reports is not None:
        _reports.put((units, _stage, True, metrics))


def report_turns(count: int) -> None:
    """Report from inside a task that so many more turns were played for it, here or on a rollout host."""
    global _num_turns
    _num_turns += count
    report_progress(0, turns=_num_turns)


def _perform(task: Task) -> Any:
    """Perform a task; units that it did not report (its stage was done before) are reported here."""
    global _left, _scale, _stage, _num_turns
    _left, _scale = task.units, task.units / (task.reports or task.units or 1)
    _stage, _num_turns = task.name, 0
    with counting_turns(TurnReports(report_turns).note):
        result = task.call(*task.args)
    if _left > 0 and _reports is not None:
        _reports.put((_left, _stage, False, {}))
    _left, _scale = math.inf, 1.0
    return result


def _perform_in_worker(task: Task, rank: int, port: int) -> Any:
    """Perform a task, maybe as one of its ranks: the first one alone reports progress and returns the result.

    The memory that it took is there for other workers afterwards.
    """
    global _reports
    reports, variables = _reports, {}
    if task.ranks > 1:
        places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": task.ranks, "LOCAL_WORLD_SIZE": task.ranks}
        variables = {name: str(value) for name, value in places.items()}
        variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ.update(variables)
    if rank:
        _reports = None
    try:
        result = _perform(task)
        return_freed_memory()
        return None if rank else result
    finally:
        _reports = reports
        for name in variables:
            del os.environ[name]


def run_tasks(
    tasks: Sequence[Task],
    *,
    num_workers: int,
    num_threads: int,
    title: str,
    prepare: Callable[[], None] | None = None,
) -> dict[str, Any]:
    """Run all tasks, earlier ones first wherever several are ready; results by name.

    With 0 workers they run in this process, each on one rank, for debuggers and planted faults.
    The first failure stops the rest and is raised as itself.
    Every worker has one of the visible GPUs to itself, or shares it where there are more workers.
    `prepare`, a module-level function, is called in each process that performs tasks, before its first one.

    Raises:
        ValueError: a task waits for one that is not in `tasks`, or tasks wait for each other.
        WorkerLostError: a worker process was killed.
    """
    _check_order(tasks)
    if num_workers == 0:
        claim_gpu(visible_gpus(), 0)
        if prepare is not None:
            prepare()
        results: dict[str, Any] = {}
        with show_progress(title, sum(task.units for task in tasks)):
            while len(results) < len(tasks):
                ready = (task for task in tasks if task.name not in results)
                task = next(task for task in ready if set(task.after) <= results.keys())
                results[task.name] = _perform(task)
        return results
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # no advice on data parallel passes in every worker
    os.environ.setdefault("OMP_NUM_THREADS", str(num_threads))
    context = multiprocessing.get_context("spawn")
    num_workers = max(num_workers, *(task.ranks for task in tasks), 1)
    with context.Manager() as manager, progress(title, sum(task.units for task in tasks)) as bar:
        reports, numbers = manager.Queue(), manager.Queue()
        for number in range(num_workers):
            numbers.put(number)
        pool = ProcessPoolExecutor(
            num_workers,
            mp_context=context,
            initializer=_start_worker,
            initargs=(reports, num_threads, prepare, visible_gpus(), numbers),
        )
        try:
            return _work_off(list(tasks), pool, num_workers, reports, bar.advance)
        except BaseException:
            if any(task.ranks > 1 for task in tasks):  # a rank may wait for one that has failed
                for process in list(pool._processes.values()):
                    process.terminate()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _check_order(tasks: Sequence[Task]) -> None:
    names = {task.name for task in tasks}
    for task in tasks:
        if missing := set(task.after) - names:
            raise ValueError(f"task {task.name!r} waits for unknown {sorted(missing)}")
    waiting = list(tasks)
    while waiting:
        stuck = {task.name for task in waiting}
        waiting = [task for task in waiting if stuck & set(task.after)]
        if len(waiting) == len(stuck):
            raise ValueError(f"tasks wait for each other: {sorted(stuck)}")


@contextmanager
def show_progress(title: str, units: float, *, shown: bool = True) -> Iterator[None]:
    """Show what `report_progress` is told in this process, and its turns; not `shown`, they are dropped."""
    global _reports, _stage, _num_turns
    if not shown:
        yield
        return
    _stage, _num_turns = "", 0  # the title names it
    with progress(title, units) as bar, counting_turns(TurnReports(report_turns).note):
        _reports = SimpleNamespace(put=lambda report: _show(bar.advance, *report))
        try:
            yield
        finally:
            _reports = None


def _work_off(
    waiting: list[Task], pool: ProcessPoolExecutor, num_workers: int, reports: Any, advance: Report
) -> dict[str, Any]:
    results: dict[str, Any] = {}
    of_ranks: dict[str, list[Any]] = {}
    running: dict[Future[Any], Task] = {}
    silence = SilentProgress()
    while waiting or running:
        for task in [task for task in waiting if set(task.after) <= results.keys()]:
            if len(running) + task.ranks > num_workers:
                break  # what needs several workers is not put off for ever by what needs one
            running |= _submit(pool, task)
            waiting.remove(task)
        done, _ = wait(running, timeout=0.5, return_when=FIRST_COMPLETED)
        if _drain(reports, advance) or done:
            silence.end()
        elif (line := silence.note(sorted(task.name for task in running.values()))) is not None:
            print(line, file=sys.stderr, flush=True)
        for future in done:
            task = running.pop(future)
            try:
                found = of_ranks.setdefault(task.name, [])
                found.append(future.result())
            except BrokenProcessPool:
                names = ", ".join(sorted({task.name, *(one.name for one in running.values())}))
                raise WorkerLostError(
                    f"a worker process was killed while these ran: {names} (out of memory, or by a user);"
                    " go on with --resume"
                ) from None
            if len(found) == task.ranks:
                results[task.name] = next((one for one in found if one is not None), None)
    _drain(reports, advance)
    return results


def _submit(pool: ProcessPoolExecutor, task: Task) -> dict[Future[Any], Task]:
    """Hand a task to as many free workers as it has ranks."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return {pool.submit(_perform_in_worker, task, rank, port): task for rank in range(task.ranks)}


def _show(advance: Report, units: float, stage: str, worked: bool, metrics: Mapping[str, float]) -> None:
    advance(units, stage=stage, worked=worked, **metrics)


def _drain(reports: Any, advance: Report) -> bool:
    """Show the waiting reports and lines of workers; return whether there were any reports."""
    came = False
    while True:
        try:
            report = reports.get_nowait()
        except queue.Empty:
            return came
        if isinstance(report, str):
            print(report, file=sys.stderr, flush=True)
            continue
        _show(advance, *report)
        came = True


class TurnReports:
    """Reports turns that were played since the last report: rollouts of one step may take minutes."""

    def __init__(self, report: Callable[[int], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._report, self._clock = report, clock
        self._last_s = clock()
        self._new = 0

    def note(self) -> None:
        """One more turn was played."""
        self._new += 1
        now = self._clock()
        if now - self._last_s >= TURNS_S:
            self._last_s = now
            self._report(self._new)
            self._new = 0


class SilentProgress:
    """Writes a line when no worker has reported for QUIET_S, then after each time twice as long."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.end()

    def end(self) -> None:
        """Something was reported."""
        self._since, self._next_s = self._clock(), QUIET_S

    def note(self, names: Sequence[str]) -> str | None:
        """A line that names the silent tasks, if it is time for one."""
        quiet_s = self._clock() - self._since
        if quiet_s < self._next_s:
            return None
        self._next_s *= 2
        return (
            f"no progress for {quiet_s:.0f} s from {', '.join(names)}; Ctrl-C stops the run,"
            " --resume goes on from the newest checkpoint"
        )

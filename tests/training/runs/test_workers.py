"""Tasks over real worker processes: order, failures as themselves, progress; and the same in one process.

Workers import this file for their tasks: what takes seconds to import is imported where it is used.
"""

import asyncio
import os
import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fast_loop import slow_except

from roles.errors import UserError
from simulator.observer import note_turn
from training.runs import workers
from training.runs.run_errors import WORKER_LOST, WorkerLostError
from training.runs.workers import (
    QUIET_S,
    LineSender,
    SilentProgress,
    Task,
    TurnReports,
    report_progress,
    report_turns,
    run_tasks,
    show_progress,
)


def note(folder: str, name: str, partner: str = "") -> tuple[str, int]:
    """Leave a mark of start and end, and do not end before the partner started; returns (name, process)."""
    Path(folder, f"{name}.start").write_text(str(time.monotonic()))
    deadline = time.monotonic() + 60
    while partner and not Path(folder, f"{partner}.start").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    Path(folder, f"{name}.end").write_text(str(time.monotonic()))
    return name, os.getpid()


def fail(message: str) -> None:
    raise UserError(message)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def report_in_thirds(loss: float) -> None:
    report_progress(1)
    report_progress(1, cto_loss=loss)


def warn(text: str) -> None:
    warnings.warn(text, stacklevel=1)
    report_progress(1)


def report_too_much(count: int) -> None:
    for _ in range(count):
        report_progress(1)


def when(folder: Path, name: str) -> float:
    return float((folder / name).read_text())


def task(folder: Path, name: str, *after: str, partner: str = "") -> Task:
    return Task(name=name, call=note, args=(str(folder), name, partner), after=after)


@pytest.mark.parametrize("num_workers", slow_except([0, 2], 0))
def test_dependencies_results_and_progress(
    num_workers: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A diamond given in the wrong order, a free task beside it, and one that reports 2 of its 3 units."""
    tasks = [
        task(tmp_path, "last", "left", "right"),
        task(tmp_path, "left", "first", partner="right" if num_workers else ""),
        task(tmp_path, "right", "first", partner="left" if num_workers else ""),
        task(tmp_path, "first"),
        task(tmp_path, "free"),
        Task(name="reports", call=report_in_thirds, args=(0.25,), after=("free",), units=3),
    ]
    results = run_tasks(tasks, num_workers=num_workers, num_threads=1, title="demo")
    assert {name: result and result[0] for name, result in results.items()} == {
        **{name: name for name in ("first", "left", "right", "last", "free")},
        "reports": None,
    }
    assert when(tmp_path, "first.end") <= min(when(tmp_path, f"{name}.start") for name in ("left", "right"))
    assert max(when(tmp_path, f"{name}.end") for name in ("left", "right")) <= when(tmp_path, "last.start")
    side_by_side = when(tmp_path, "right.start") < when(tmp_path, "left.end")
    processes = {process for _, process in (result for result in results.values() if result)}
    if num_workers:
        assert os.getpid() not in processes
        assert side_by_side
    else:
        assert processes == {os.getpid()}
        assert not side_by_side
    last_line = capsys.readouterr().err.splitlines()[-1]
    assert last_line.startswith("demo: 100 % in ")
    assert last_line.endswith(", reports cto_loss 0.25")


@pytest.mark.parametrize("num_workers", slow_except([0, 1], 0))
def test_the_first_failure_is_raised_as_itself_and_stops_the_rest(num_workers: int, tmp_path: Path) -> None:
    tasks = [
        task(tmp_path, "before"),
        Task(name="bad", call=fail, args=("no sound sft weights",), after=("before",)),
        task(tmp_path, "after", "bad"),
        task(tmp_path, "beside", "before"),
    ]
    with pytest.raises(UserError, match="no sound sft weights"):
        run_tasks(tasks, num_workers=num_workers, num_threads=1, title="demo")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["before.end", "before.start"]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_unknown_dependency_is_refused_before_anything_runs(num_workers: int, tmp_path: Path) -> None:
    tasks = [task(tmp_path, "first"), task(tmp_path, "second", "first", "thrid", "sft/cto")]
    with pytest.raises(ValueError, match=r"task 'second' waits for unknown \['sft/cto', 'thrid'\]"):
        run_tasks(tasks, num_workers=num_workers, num_threads=1, title="demo")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("num_workers", [0, 2])
def test_tasks_that_wait_for_each_other_are_refused(num_workers: int, tmp_path: Path) -> None:
    tasks = [task(tmp_path, "free"), task(tmp_path, "one", "free", "two"), task(tmp_path, "two", "one")]
    with pytest.raises(ValueError, match=r"wait for each other: \['one', 'two'\]"):
        run_tasks(tasks, num_workers=num_workers, num_threads=1, title="demo")
    assert list(tmp_path.iterdir()) == []


def test_no_tasks_no_results() -> None:
    assert run_tasks([], num_workers=0, num_threads=1, title="demo") == {}


def test_reports_outside_a_task_go_nowhere(capsys: pytest.CaptureFixture[str]) -> None:
    report_progress(5, loss=1.0)
    assert capsys.readouterr().err == ""


@pytest.mark.process
def test_a_killed_worker_is_one_line_that_names_its_task(tmp_path: Path) -> None:
    tasks = [Task(name="sft/cto", call=die), task(tmp_path, "later", "sft/cto")]
    with pytest.raises(WorkerLostError, match=r"killed while these ran: sft/cto .*--resume") as error:
        run_tasks(tasks, num_workers=1, num_threads=1, title="demo")
    assert error.value.status == WORKER_LOST
    assert list(tmp_path.iterdir()) == []


def test_silence_is_named_ever_more_rarely_until_a_word_comes() -> None:
    now = 0.0
    silence = SilentProgress(clock=lambda: now)
    said = []
    for second in range(0, int(8 * QUIET_S)):
        now = float(second)
        if (line := silence.note(["sft/cto"])) is not None:
            said.append((second, line))
        if second == 5 * QUIET_S:
            silence.end()
    assert [second / QUIET_S for second, _ in said] == [1, 2, 4, 6, 7]
    assert said[0][1].startswith("no progress for 120 s from sft/cto; Ctrl-C stops the run")


def test_turns_are_reported_twice_a_minute(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    with show_progress("GRPO", 100):
        turns = TurnReports(report_turns, clock=lambda: now)
        for second in range(75):
            now = float(second)
            turns.note()
    assert capsys.readouterr().err.endswith("GRPO: 0 % in 0 s, turns 61\n")  # told of at 30 s and at 60 s


def play_turns(count: int) -> None:
    for _ in range(count):
        note_turn()


def test_a_task_that_plays_for_long_says_how_many_turns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "TURNS_S", 0.0)
    tasks = [Task(name="grpo/cto", call=play_turns, args=(1234,), units=5)]
    run_tasks(tasks, num_workers=0, num_threads=1, title="GRPO")
    assert capsys.readouterr().err.endswith("GRPO: 100 % in 0 s, grpo/cto turns 1,234\n")


def test_turns_outside_any_task_are_shown_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank of torchrun shows its own progress and performs no task."""
    monkeypatch.setattr(workers, "TURNS_S", 0.0)
    with show_progress("marl", 10):
        play_turns(1234)
    assert capsys.readouterr().err.endswith("marl: 0 % in 0 s, turns 1,234\n")


class _Talker:
    def load(self, count: int) -> None:
        play_turns(count)


@contextmanager
def open_talker() -> Iterator[Any]:
    workers.TURNS_S = 0.0  # in the host's process
    yield _Talker()


async def play_on_hosts() -> None:
    from training.rl.remote_hosts import ProcessHost

    for number, count in enumerate((1000, 234)):
        host = ProcessHost(open_talker, number=number)
        await host.start()
        await host.call("load", count)
        host.close()


@pytest.mark.process
def test_turns_on_rollout_hosts_count_for_the_task_that_asks_them(capsys: pytest.CaptureFixture[str]) -> None:
    tasks = [Task(name="marl", call=asyncio.run, args=(play_on_hosts(),), units=5)]
    run_tasks(tasks, num_workers=0, num_threads=1, title="MARL")
    assert capsys.readouterr().err.endswith(", marl turns 1,234\n")


def add_up_ranks(folder: str) -> float:
    """Sum over the ranks of 1 + rank; each leaves a file named by its rank."""
    from training.learner.fsdp import join_ranks, leave_ranks

    ranks = join_ranks()
    (Path(folder) / f"{ranks.rank} of {ranks.size}").touch()
    (found,) = ranks.sum([1.0 + ranks.rank])
    leave_ranks(ranks)
    return found


def fail_on_the_second_rank() -> None:
    """Rank 1 fails while rank 0 waits for it."""
    from training.learner.fsdp import join_ranks

    ranks = join_ranks()
    if ranks.rank == 1:
        raise UserError("no sound sft weights")
    ranks.wait()


@pytest.mark.process
def test_a_task_of_two_ranks_takes_two_workers_and_returns_the_first_ones_result(tmp_path: Path) -> None:
    tasks = [
        Task(name="joint", call=add_up_ranks, args=(str(tmp_path),), ranks=2),
        Task(name="again", call=add_up_ranks, args=(str(tmp_path),), after=("joint",), ranks=2),
        Task(name="alone", call=os.getpid, after=("again",)),
    ]
    results = run_tasks(tasks, num_workers=1, num_threads=1, title="demo")
    assert (results["joint"], results["again"]) == (3.0, 3.0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0 of 2", "1 of 2"]


@pytest.mark.process
def test_a_rank_that_fails_ends_the_one_that_waits_for_it() -> None:
    tasks = [Task(name="joint", call=fail_on_the_second_rank, ranks=2)]
    start = time.monotonic()
    with pytest.raises(UserError, match="no sound sft weights"):
        run_tasks(tasks, num_workers=2, num_threads=1, title="demo")
    assert time.monotonic() - start < 60  # a group's own limit is half an hour


@pytest.mark.process
def test_a_warning_of_a_worker_is_a_line_of_its_own_in_the_main_process(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run_tasks([Task(name="one", call=warn, args=("planned",))], num_workers=1, num_threads=1, title="demo")
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if "UserWarning: planned" in line]
    assert lines[-1].startswith("demo: 100 % in ")


def test_lines_of_a_worker_are_sent_whole() -> None:
    sent: list[str] = []
    sender = LineSender(sent.append)
    for part in ("first ", "half\nsecond", "\nopen"):
        sender.write(part)
    assert sent == ["first half", "second"]


def test_a_task_fills_its_share_of_the_bar_and_no_more(capsys: pytest.CaptureFixture[str]) -> None:
    tasks = [
        Task(name="one", call=report_too_much, args=(30,), units=10),  # reports more than was planned
        Task(name="two", call=report_too_much, args=(5,), units=90, reports=5),  # 18 units a report
    ]
    run_tasks(tasks, num_workers=0, num_threads=1, title="demo")
    assert capsys.readouterr().err.startswith("demo: 100 % in ")
    shown: list[float] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workers, "_reports", DirectReports(shown))
        for task in tasks:
            workers._perform(task)
    assert (sum(shown[:30]), sum(shown[30:])) == (10, 90)


class DirectReports:
    def __init__(self, units: list[float]) -> None:
        self._units = units

    def put(self, report: tuple[float, str, bool, dict[str, float]]) -> None:
        self._units.append(report[0])

"""Roles side by side on several GPUs: each worker process sees one of them.

Workers import this file for their tasks: what takes seconds to import is imported where it is used.
"""

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from training.runs.workers import Task, claim_gpu, run_tasks, spare_gpus, visible_gpus


def meet(folder: str, name: str, others: int) -> str | None:
    """The GPU that this process sees, told when all others have come, so that no worker does two tasks."""
    Path(folder, name).touch()
    deadline = time.monotonic() + 60
    while len(list(Path(folder).iterdir())) < others and time.monotonic() < deadline:
        time.sleep(0.01)
    return os.environ.get("CUDA_VISIBLE_DEVICES")


@pytest.mark.process
def test_each_worker_sees_one_gpu_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5,7")
    tasks = [Task(name=name, call=meet, args=(str(tmp_path), name, 3)) for name in ("cto", "coo", "risk")]
    seen = run_tasks(tasks, num_workers=3, num_threads=1, title="side by side")
    assert sorted(seen.values()) == ["2", "5", "7"]


@pytest.mark.parametrize(("named", "expected"), [(None, "0"), ("4,6", "4")])
def test_one_process_without_workers_takes_the_first(
    named: str | None, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named or "")
    task = Task(name="cto", call=meet, args=(str(tmp_path), "cto", 1))
    assert run_tasks([task], num_workers=0, num_threads=1, title="one")["cto"] == expected


def test_one_gpu_none_and_torchrun_are_left_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    claim_gpu(visible_gpus(), 4)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3"
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    assert visible_gpus() == []
    monkeypatch.setenv("LOCAL_RANK", "1")
    claim_gpu(["0", "1"], 0)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3"


@pytest.mark.parametrize(
    ("learners", "count", "left"), [(None, 4, "123"), ("2", 4, "23"), ("4", 4, "0123"), (None, 1, "0")]
)
def test_hosts_take_the_gpus_that_learners_leave(
    learners: str | None, count: int, left: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr("torch.cuda.device_count", lambda: count)
    if learners:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", learners)
    assert spare_gpus() == list(left)


class Seer:
    """In place of a RolloutHost."""

    def see(self) -> tuple[str | None, str | None]:
        return os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("LOCAL_RANK")


@contextmanager
def open_seer() -> Iterator[Any]:
    yield Seer()


@pytest.mark.process
def test_a_host_of_a_rank_has_a_gpu_of_its_own_and_is_no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the only one that learners leave; a rank's number would let it take the learner's."""
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")

    from training.rl.remote_hosts import ProcessHost

    async def ask() -> Any:
        await host.start()
        return await host.call("see")

    host = ProcessHost(open_seer, gpus=["5"])
    try:
        assert asyncio.run(ask()) == ("5", None)
    finally:
        host.close()

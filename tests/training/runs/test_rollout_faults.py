"""Rollout hosts killed, hung and slowed in mid-step (check R9): real processes, real signals."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from rank_launch import fork_hosts

from reliability.joint.rollout_faults import PR_FAULTS, FaultySteps
from training.rl.hosts import HostLostError, HostSchedule
from training.rl.loop import RLLearner


@pytest.fixture(scope="module")
def steps() -> Iterator[FaultySteps]:
    with pytest.MonkeyPatch.context() as patch:
        fork_hosts(patch)
        opened = FaultySteps(timeout_s=10.0)
        yield opened
        opened.close()


@pytest.mark.process
@pytest.mark.parametrize(("fault", "at"), PR_FAULTS)
def test_a_step_learns_what_it_learns_without_hosts(steps: FaultySteps, fault: str, at: int) -> None:
    assert steps.try_fault(fault, at) == ""


@pytest.mark.process
def test_a_pool_that_forgets_the_work_of_a_lost_host_is_caught(
    steps: FaultySteps, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = HostSchedule._call

    async def forget(self: HostSchedule, host: Any, method: str, *arguments: Any) -> Any:
        try:
            return await call(self, host, method, *arguments)
        except HostLostError:
            await asyncio.sleep(0)
            return []

    monkeypatch.setattr(HostSchedule, "_call", forget)
    assert "sets in the loss" in steps.try_fault("kill", 5)


@pytest.mark.process
def test_a_learner_that_learns_twice_is_caught(steps: FaultySteps, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = RLLearner.learn

    def twice(self: RLLearner, groups: Any) -> dict[str, float]:
        plain(self, groups)
        return plain(self, groups)

    monkeypatch.setattr(RLLearner, "learn", twice)
    assert "learnt something else" in steps.try_fault("slow", 3)

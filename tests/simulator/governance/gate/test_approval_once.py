"""An approval commits one proposal once: replays, second displays and concurrent answers change nothing."""

import asyncio
from contextlib import nullcontext
from pathlib import Path

import pytest
from finality_probes import stop
from gate_probes import APPROVE, Probe
from governed_tables import Stand, find_gate_case, stand_at_gate
from langgraph.types import Command
from trial_counts import num_trials

from simulator.governance.seals import NotApprovedError


async def replay(stand: Stand) -> None:
    """Commit and carry out honestly, up to the close."""
    await stop(stand, "close", await stand.submit())


async def replayed_by_time_travel(stand: Stand) -> None:
    before = (await stand.graph.aget_state(stand.config)).config
    await replay(stand)
    await stand.go(Command(resume=True), before)


async def replayed_from_the_beginning(stand: Stand) -> None:
    await replay(stand)
    await stand.start()


async def replayed_on_a_new_display(stand: Stand) -> None:
    """The plan that was carried out is displayed once more, and the desk is asked for a second approval."""
    before, first = (await stand.graph.aget_state(stand.config)).config, await stand.request()
    await replay(stand)
    fork = await stand.graph.aupdate_state(before, {"shown": 1}, as_node="vote")
    await stand.go(None, fork)
    with pytest.raises(NotApprovedError):
        stand.services.gate.submit(first.interrupt_id, first.digest, APPROVE, "ann")
    await stand.rule()


async def second_plan_for_the_same_attempt(stand: Stand) -> None:
    """Another plan is displayed after the first was carried out, and is approved past the desk."""
    before = (await stand.graph.aget_state(stand.config)).config
    await stop(stand, "close", await stand.submit())
    reports = {
        seat: {**said, "parsed": {**said["parsed"], "offers": []}}
        for seat, said in (await stand.graph.aget_state(stand.config)).values["reports"].items()
    }
    fork = await stand.graph.aupdate_state(before, {"shown": 1, "reports": reports}, as_node="vote")
    await stand.go(None, fork)
    assert stand.count("requested") == 2
    await stand.rule()


async def concurrent_double_approval(stand: Stand) -> None:
    stand.services.reviewers.register("bob")
    await stand.submit()
    with pytest.raises(NotApprovedError, match="was settled"):
        await stand.submit(reviewer="bob")
    await asyncio.gather(stand.answer(True), stand.answer(True))


async def concurrent_same_approval(stand: Stand) -> None:
    await stand.submit()
    await asyncio.gather(*(stand.answer(True) for _ in range(4)))


AT_MOST_ONE = (
    replayed_by_time_travel,
    replayed_on_a_new_display,
    replayed_from_the_beginning,
    second_plan_for_the_same_attempt,
    concurrent_double_approval,
    concurrent_same_approval,
)


async def use_twice(probe: Probe, folder: Path, *, index: int = 0, is_grouped: bool = False) -> None:
    """Try to use one approval more than once; exactly one commit and its four parts are there."""
    async with stand_at_gate(folder, index=index) as stand:
        with stand.services.log.grouping() if is_grouped else nullcontext():
            await probe(stand)
        assert stand.count("committed") == 1
        assert stand.count("executed") == 4
        assert stand.kinds().count("committed") == 1
        assert stand.kinds().count("executed") == 4
        assert stand.is_sound()


@pytest.mark.parametrize("seed", range(num_trials(1, 20)))
@pytest.mark.parametrize("probe", AT_MOST_ONE, ids=lambda probe: probe.__name__)
def test_one_approval_commits_once(probe: Probe, seed: int, tmp_path: Path) -> None:
    asyncio.run(use_twice(probe, tmp_path, index=find_gate_case(seed), is_grouped=seed % 2 == 1))

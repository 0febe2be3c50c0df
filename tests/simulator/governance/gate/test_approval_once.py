"""An approval commits one proposal once: replays, second displays and concurrent answers change nothing."""

import asyncio
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from gate_probes import Probe, swap_option
from governed_tables import Stand, find_gate_case, stand_at_gate
from langgraph.types import Command
from trial_counts import num_trials


async def replay(stand: Stand) -> dict[str, Any]:
    """Commit and carry out honestly, up to the close; the record that did it."""
    record = (await stand.sign()).model_dump()
    await stand.graph.ainvoke(
        Command(resume={(await stand.interrupt()).id: record}),
        stand.config,
        context=stand.context,
        durability="sync",
        interrupt_before=["close"],
    )
    assert (await stand.graph.aget_state(stand.config)).next == ("close",)
    return record


async def replayed_by_time_travel(stand: Stand) -> None:
    before = (await stand.graph.aget_state(stand.config)).config
    interrupt_id = (await stand.interrupt()).id
    record = await replay(stand)
    await stand.go(Command(resume={interrupt_id: record}), before)


async def replayed_on_a_new_display(stand: Stand) -> None:
    before = (await stand.graph.aget_state(stand.config)).config
    record = await replay(stand)
    fork = await stand.graph.aupdate_state(before, {"refusal": ""}, as_node="propose")
    await stand.go(None, fork)
    await stand.answer(record)


async def nonce_used_again(stand: Stand) -> None:
    before = (await stand.graph.aget_state(stand.config)).config
    record = await replay(stand)
    fork = await stand.graph.aupdate_state(before, {"refusal": ""}, as_node="propose")
    await stand.go(None, fork)
    await stand.answer((await stand.sign(nonce=record["nonce"])).model_dump())


async def second_plan_for_the_same_attempt(stand: Stand) -> None:
    """A genuine approval of another plan, in a fork, after the first was carried out."""
    before, swapped = (await stand.graph.aget_state(stand.config)).config, swap_option(await stand.proposal())
    await replay(stand)
    fork = await stand.graph.aupdate_state(before, {"proposal": swapped}, as_node="propose")
    await stand.go(None, fork)
    await stand.answer((await stand.sign()).model_dump())


async def concurrent_double_approval(stand: Stand) -> None:
    first, second = await stand.sign(), await stand.sign(reviewer="bob")
    await asyncio.gather(stand.answer(first.model_dump()), stand.answer(second.model_dump()))


async def concurrent_same_approval(stand: Stand) -> None:
    record = (await stand.sign()).model_dump()
    await asyncio.gather(*(stand.answer(record) for _ in range(4)))


AT_MOST_ONE = (
    replayed_by_time_travel,
    replayed_on_a_new_display,
    nonce_used_again,
    second_plan_for_the_same_attempt,
    concurrent_double_approval,
    concurrent_same_approval,
)


async def use_twice(probe: Probe, folder: Path, *, index: int = 0, is_grouped: bool = False) -> None:
    """Try to use one approval more than once; exactly one commit and its four parts are there."""
    async with stand_at_gate(folder, index=index) as stand:
        with stand.services.connection.grouping() if is_grouped else nullcontext():
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

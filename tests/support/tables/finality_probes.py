"""Ways to revive what was ruled on, refused or closed."""

from typing import Any

import pytest
from gate_probes import APPROVE, Probe, stop_before_commit
from governed_tables import Stand
from langgraph.types import Command

from simulator.governance.gate import LIFETIME_S
from simulator.governance.proposal import ReviewResponse
from simulator.governance.seals import NotApprovedError

REJECT = ReviewResponse(decision="reject")


async def stop(stand: Stand, before: str, answer: Any = None) -> None:
    """Play on, with an answer that the desk has kept, and stop before this node."""
    step: Any = None if answer is None else Command(resume=True)
    await stand.graph.ainvoke(
        step, stand.config, context=stand.context, durability="sync", interrupt_before=[before]
    )
    assert (await stand.graph.aget_state(stand.config)).next == (before,)


def refuse_late(stand: Stand, interrupt_id: str, digest: str) -> None:
    """The desk must not take an answer."""
    with pytest.raises(NotApprovedError):
        stand.services.gate.submit(interrupt_id, digest, APPROVE, "ann")


async def claim_approval(stand: Stand) -> Any:
    return await stand.go(Command(goto="commit"))


async def rejected_then_approved(stand: Stand) -> Any:
    request = await stand.request()
    await stop(stand, "reconcile", await stand.submit(REJECT))
    refuse_late(stand, request.interrupt_id, request.digest)
    return await claim_approval(stand)


async def edited_then_approved(stand: Stand) -> Any:
    request = await stand.request()
    await stop(stand, "propose", await stand.submit(ReviewResponse(decision="edit", option="none")))
    refuse_late(stand, request.interrupt_id, request.digest)
    return await claim_approval(stand)


async def approved_after_the_close(stand: Stand) -> Any:
    """The case closes without an approval; then its request, which was rejected, is approved."""
    before, request = (await stand.graph.aget_state(stand.config)).config, await stand.request()
    await stop(stand, "reconcile", await stand.submit(REJECT))
    await stand.jump("close")
    assert stand.services.gate.stand(stand.thread).status == "not_approved"
    refuse_late(stand, request.interrupt_id, request.digest)
    await stand.go(Command(resume=True), before)
    fork = await stand.graph.aupdate_state(before, {"shown": 2}, as_node="propose")
    await stand.go(None, fork)
    return await stand.answer(True)


async def committed_after_the_close(stand: Stand) -> Any:
    """Approved, closed before the commit by a claim, then committed from the checkpoint before."""
    await stop_before_commit(stand)
    before = (await stand.graph.aget_state(stand.config)).config
    await stand.go(Command(goto="close"))
    assert stand.kinds()[-1] == "closed"
    return await stand.go(None, before)


async def expired_then_clock_set_back(stand: Stand) -> Any:
    await stop_before_commit(stand)
    before = (await stand.graph.aget_state(stand.config)).config
    stand.clock.now_s += LIFETIME_S + 1
    await stop(stand, "propose")
    assert stand.kinds()[-1] == "refused"
    stand.clock.now_s -= LIFETIME_S + 1
    await stand.go(None, before)
    return await stand.jump("commit", before)


FINALITY_PROBES: dict[str, Probe] = {
    "rejected, then approved": rejected_then_approved,
    "edited away, then approved": edited_then_approved,
    "approved after the close": approved_after_the_close,
    "committed after the close": committed_after_the_close,
    "expired, then the clock set back": expired_then_clock_set_back,
}

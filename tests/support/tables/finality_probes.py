"""Ways to revive what was ruled on, refused or closed, and to write permissions and deliveries on disk."""

import sqlite3
from typing import Any

import pytest
from gate_probes import APPROVE, Probe, stop_before_commit
from governed_tables import Stand
from langgraph.types import Command

from simulator.governance.gate.approvals import ApprovalRecord, NotApprovedError, ReviewResponse


def insert_row(stand: Stand, table: str, **values: Any) -> None:
    """Write a row behind our back, with a made-up seal where the table has one."""
    with sqlite3.connect(stand.path) as connection:
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        given = {"seal": "0" * 64, **values}
        row = [given[column] for column in columns]
        connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
    connection.close()


async def next_superstep(stand: Stand) -> int:
    metadata = (await stand.graph.aget_state(stand.config)).metadata
    assert metadata is not None
    return metadata["step"] + 1


async def stop(stand: Stand, before: str, answer: Any = None) -> None:
    """Play on, with an answer to the live interrupt, and stop before this node."""
    step: Any = None if answer is None else Command(resume={(await stand.interrupt()).id: answer})
    await stand.graph.ainvoke(
        step, stand.config, context=stand.context, durability="sync", interrupt_before=[before]
    )
    assert (await stand.graph.aget_state(stand.config)).next == (before,)


async def sign_late(stand: Stand, interrupt_id: str, digest: str) -> ApprovalRecord:
    """The desk must not sign; whoever has the key signs all the same."""
    with pytest.raises(NotApprovedError):
        stand.services.desk.submit(interrupt_id, digest, APPROVE, "ann")
    return await stand.sign(interrupt_id=interrupt_id, proposal_digest=digest)


async def claim_approval(stand: Stand, record: ApprovalRecord) -> Any:
    return await stand.claim({"ruling": {"ruling": "approve", "approval": record.model_dump()}}, "review")


async def rejected_then_signed(stand: Stand) -> Any:
    interrupt_id, digest = (await stand.interrupt()).id, (await stand.proposal()).digest
    await stop(stand, "reconcile", (await stand.sign(ReviewResponse(decision="reject"))).model_dump())
    return await claim_approval(stand, await sign_late(stand, interrupt_id, digest))


async def edited_then_signed(stand: Stand) -> Any:
    interrupt_id, digest = (await stand.interrupt()).id, (await stand.proposal()).digest
    edit = await stand.sign(ReviewResponse(decision="edit", option="none"))
    await stop(stand, "propose", edit.model_dump())
    return await claim_approval(stand, await sign_late(stand, interrupt_id, digest))


async def approved_after_the_close(stand: Stand) -> Any:
    """The case closes without an approval; then its request, which was rejected, is signed."""
    before = (await stand.graph.aget_state(stand.config)).config
    interrupt_id, digest = (await stand.interrupt()).id, (await stand.proposal()).digest
    await stop(stand, "reconcile", (await stand.sign(ReviewResponse(decision="reject"))).model_dump())
    closed = await stand.claim({"ruling": {"ruling": "refused"}, "refusals": 9}, "review")
    assert closed["status"] == "not_approved"
    record = await sign_late(stand, interrupt_id, digest)
    await stand.go(Command(resume={interrupt_id: record.model_dump()}), before)
    fork = await stand.graph.aupdate_state(before, {"refusal": ""}, as_node="propose")
    await stand.go(None, fork)
    return await stand.answer(record.model_dump())


async def committed_after_the_close(stand: Stand) -> Any:
    """Approved, closed before the commit by a claim, then committed from the checkpoint before."""
    await stop_before_commit(stand)
    before = (await stand.graph.aget_state(stand.config)).config
    await stand.claim({"ruling": {"ruling": "refused"}, "refusals": 9}, "review")
    return await stand.go(None, before)


async def expired_then_clock_set_back(stand: Stand) -> Any:
    await stop_before_commit(stand)
    before = (await stand.graph.aget_state(stand.config)).config
    stand.clock.now_s += 601
    await stop(stand, "review")
    assert stand.kinds()[-1] == "refused"
    stand.clock.now_s -= 601
    await stand.go(None, before)
    fork = await stand.graph.aupdate_state(before, {"refusal": "x"}, as_node="review")
    return await stand.go(None, fork)


async def expired_at_the_review_then_clock_set_back(stand: Stand) -> Any:
    record = await stand.sign()
    stand.clock.now_s += 601
    await stop(stand, "review", record.model_dump())
    stand.clock.now_s -= 601
    return await claim_approval(stand, record)


def change_rows(stand: Stand, statement: str, values: tuple[Any, ...] = ()) -> None:
    with sqlite3.connect(stand.path) as connection:
        assert connection.execute(statement, values).rowcount > 0
    connection.close()


async def rejected_request_deleted(stand: Stand) -> Any:
    interrupt_id, digest = (await stand.interrupt()).id, (await stand.proposal()).digest
    before = (await stand.graph.aget_state(stand.config)).config
    await stop(stand, "reconcile", (await stand.sign(ReviewResponse(decision="reject"))).model_dump())
    change_rows(stand, "DELETE FROM requests")
    record = await sign_late(stand, interrupt_id, digest)
    await stand.go(Command(resume={interrupt_id: record.model_dump()}), before)
    return await claim_approval(stand, record)


FINALITY_PROBES: dict[str, Probe] = {
    "rejected, then signed": rejected_then_signed,
    "edited away, then signed": edited_then_signed,
    "approved after the close": approved_after_the_close,
    "committed after the close": committed_after_the_close,
    "expired, then the clock set back": expired_then_clock_set_back,
    "expired at the review, then the clock set back": expired_at_the_review_then_clock_set_back,
    "rejected request deleted": rejected_request_deleted,
}

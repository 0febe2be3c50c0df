"""Ways past the human gate, each tried on a real thread in a real store."""

import json
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from governed_tables import OTHER_KEY, Stand
from langgraph.types import Command

from reliability.governed.cases import KEY
from simulator.governance.gate.approvals import (
    MAX_LIFETIME_S,
    ApprovalRecord,
    NotApprovedError,
    Proposal,
    ReviewResponse,
    _sign,
)
from simulator.governance.gate.seals import seal
from simulator.governance.runner import thread_config
from simulator.governance.store.database import canonical_json
from simulator.governance.store.decision_log import entry_hash

Probe = Callable[[Stand], Awaitable[Any]]


APPROVE = ReviewResponse(decision="approve")


OTHER_OPTION = {"A": "B", "B": "C", "C": "A"}


def swap_option(proposal: Proposal) -> dict[str, Any]:
    """The same proposal with another option in its plan."""
    other = OTHER_OPTION[proposal.option]
    text = canonical_json(proposal.model_dump()).replace(f"option {proposal.option}", f"option {other}")
    return {**json.loads(text), "option": other}


def resign(record: ApprovalRecord, **changed: Any) -> dict[str, Any]:
    """The record with other fields and a good signature over them: what a stolen key could make."""
    fields = {**record.model_dump(exclude={"signature"}), **changed}
    return {**fields, "signature": _sign(fields, KEY)}


async def until_review(stand: Stand) -> str:
    """Reject the first proposal honestly: a second request stands. The first interrupt's id."""
    first = (await stand.interrupt()).id
    record = await stand.sign(ReviewResponse(decision="reject", feedback="no"))
    await stand.answer(record.model_dump())
    assert (await stand.interrupt()).id != first
    return first


async def stop_before_commit(stand: Stand) -> ApprovalRecord:
    """Approve honestly, and stop between the review and the commit."""
    record = await stand.sign()
    await stand.graph.ainvoke(
        Command(resume={(await stand.interrupt()).id: record.model_dump()}),
        stand.config,
        context=stand.context,
        durability="sync",
        interrupt_before=["commit"],
    )
    assert (await stand.graph.aget_state(stand.config)).next == ("commit",)
    return record


def answer_with(value: Any) -> Probe:
    return lambda stand: stand.answer(value)


def signed_with(**changed: Any) -> Probe:
    async def probe(stand: Stand) -> Any:
        return await stand.answer((await stand.sign(**changed)).model_dump())

    return probe


def tampered_with(**changed: Any) -> Probe:
    async def probe(stand: Stand) -> Any:
        return await stand.answer({**(await stand.sign()).model_dump(), **changed})

    return probe


def claim(node: str, **values: Any) -> Probe:
    return lambda stand: stand.claim(values, node)


async def expired(stand: Stand) -> Any:
    record = await stand.sign(lifetime_s=60)
    stand.clock.now_s += 60
    return await stand.answer(record.model_dump())


async def expired_between_review_and_commit(stand: Stand) -> Any:
    await stop_before_commit(stand)
    stand.clock.now_s += 601
    return await stand.go()


async def endless_lifetime(stand: Stand) -> Any:
    record = await stand.sign()
    return await stand.answer(resign(record, expires_at_s=record.issued_at_s + MAX_LIFETIME_S + 1))


async def from_the_future(stand: Stand) -> Any:
    return await stand.answer((await stand.sign(now_s=stand.clock() + 3600)).model_dump())


async def rejection_claimed_as_approval(stand: Stand) -> Any:
    record = await stand.sign(ReviewResponse(decision="reject"))
    ruling = {"ruling": "approve", "approval": record.model_dump()}
    return await stand.claim({"ruling": ruling}, "review")


async def rejection_turned_into_approval(stand: Stand) -> Any:
    record = await stand.sign(ReviewResponse(decision="reject"))
    return await stand.answer({**record.model_dump(), "decision": "approve"})


async def edit_claimed_as_approval(stand: Stand) -> Any:
    record = await stand.sign(ReviewResponse(decision="edit", option="C"))
    ruling = {"ruling": "approve", "approval": record.model_dump()}
    return await stand.claim({"ruling": ruling}, "review")


async def committed_claimed(stand: Stand) -> Any:
    return await stand.claim({"committed": (await stand.proposal()).digest}, "commit")


async def plan_swapped_after_display(stand: Stand) -> Any:
    record = await stand.sign()
    await stand.graph.aupdate_state(
        stand.config, {"proposal": swap_option(await stand.proposal())}, as_node="propose"
    )
    await stand.go()
    return await stand.answer(record.model_dump())


async def plan_swapped_after_approval(stand: Stand) -> Any:
    await stop_before_commit(stand)
    swapped = {"proposal": swap_option(await stand.proposal())}
    return await stand.claim(swapped, "review")


async def plan_emptied_of_its_conditions(stand: Stand) -> Any:
    await stop_before_commit(stand)
    eased = (await stand.proposal()).model_dump()
    eased["parts"] = [{**part, "kpi_floor": 0} for part in eased["parts"]]
    return await stand.claim({"proposal": eased}, "review")


async def older_digest_after_edit(stand: Stand) -> Any:
    early = await stand.sign()
    await stand.answer((await stand.sign(ReviewResponse(decision="edit", option="C"))).model_dump())
    return await stand.answer(early.model_dump())


async def older_digest_claimed_after_edit(stand: Stand) -> Any:
    early = await stand.sign()
    await stand.answer((await stand.sign(ReviewResponse(decision="edit", option="C"))).model_dump())
    return await stand.claim({"ruling": {"ruling": "approve", "approval": early.model_dump()}}, "review")


async def time_travel_to_the_first_display(stand: Stand) -> Any:
    early = await stand.sign()
    before = (await stand.graph.aget_state(stand.config)).config
    first = await until_review(stand)
    return await stand.go(Command(resume={first: early.model_dump()}), before)


async def time_travel_and_old_plan_written_back(stand: Stand) -> Any:
    early, old = await stand.sign(), await stand.proposal()
    await until_review(stand)
    await stand.graph.aupdate_state(stand.config, {"proposal": old.model_dump()}, as_node="propose")
    await stand.go()
    return await stand.answer(early.model_dump())


async def approval_after_rejection(stand: Stand) -> Any:
    interrupt_id, early = (await stand.interrupt()).id, await stand.sign()
    await until_review(stand)
    return await stand.go(Command(resume={interrupt_id: early.model_dump()}))


async def answer_to_a_made_up_interrupt(stand: Stand) -> Any:
    record = await stand.sign(interrupt_id="0" * 32)
    return await stand.go(Command(resume={"0" * 32: record.model_dump()}))


async def goto_commit(stand: Stand) -> Any:
    return await stand.go(Command(goto="commit"))


async def goto_executor(stand: Stand) -> Any:
    return await stand.go(Command(goto="execute_cto"))


async def goto_all_executors(stand: Stand) -> Any:
    return await stand.go(Command(goto=[f"execute_{role}" for role in stand.case.seats]))


async def update_with_resume(stand: Stand) -> Any:
    values = {"committed": (await stand.proposal()).digest, "ruling": {"ruling": "approve"}}
    return await stand.go(Command(update=values, resume="approve"))


async def started_anew_with_an_approved_state(stand: Stand) -> Any:
    state = dict((await stand.graph.aget_state(stand.config)).values)
    state |= {"approved": True, "committed": (await stand.proposal()).digest}
    state |= {"ruling": {"ruling": "approve"}, "history": [], "status": "completed"}
    return await stand.go(state)


async def copied_into_another_thread(stand: Stand) -> Any:
    """The checkpoint of this thread under another name, approved there by this thread's approval."""
    record = await stand.sign()
    state = dict((await stand.graph.aget_state(stand.config)).values)
    other = thread_config("elsewhere")
    await stand.graph.aupdate_state(other, state, as_node="propose")
    for context in (stand.context, replace(stand.context, thread="elsewhere")):
        assert await stand.go(None, other, context) is None
        assert await stand.go(Command(resume=record.model_dump()), other, context) is None


@contextmanager
def behind_our_back(path: Path) -> Iterator[sqlite3.Connection]:
    """Write access to the file: whatever is done, its triggers stand as they were in the end."""
    with sqlite3.connect(path) as connection:
        triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        yield connection
        for _, text in triggers:
            connection.execute(text)
    connection.close()


def on_disk(path: Path, statement: str, values: tuple[Any, ...] = ()) -> None:
    """What somebody with write access to the file does behind our back."""
    with behind_our_back(path) as connection:
        assert connection.execute(statement, values).rowcount > 0


async def checkpoint_edited_on_disk(stand: Stand) -> Any:
    record, option = await stand.sign(), (await stand.proposal()).option
    old, new = f"option {option}".encode(), f"option {OTHER_OPTION[option]}".encode()
    with sqlite3.connect(stand.path) as connection:
        rows = connection.execute("SELECT sequence, written FROM checkpoints").fetchall()
        assert any(old in blob for _, blob in rows)
        for sequence, blob in rows:
            connection.execute(
                "UPDATE checkpoints SET written = ? WHERE sequence = ?", (blob.replace(old, new), sequence)
            )
    connection.close()
    return await stand.answer(record.model_dump())


async def request_edited_on_disk(stand: Stand) -> Any:
    record, swapped = await stand.sign(), swap_option(await stand.proposal())
    digest = Proposal.model_validate(swapped).digest
    on_disk(
        stand.path,
        "UPDATE requests SET body = replace(body, ?, ?)",
        ((await stand.proposal()).digest, digest),
    )
    await stand.graph.aupdate_state(stand.config, {"proposal": swapped}, as_node="propose")
    await stand.go()
    return await stand.answer(record.model_dump())


async def write_entry(stand: Stand, kind: str, **body: Any) -> None:
    """Add an entry to the log behind our back, chained as it should be, under a seal of another key."""
    with behind_our_back(stand.path) as connection:
        last = "SELECT sequence, hash, at_s FROM decision_log {} ORDER BY sequence DESC LIMIT 1"
        number, previous, at_s = connection.execute(last.format("")).fetchone()
        _, own, _ = connection.execute(last.format("WHERE thread = ?"), (stand.thread,)).fetchone()
        row = (number + 1, stand.thread, kind, canonical_json(body), at_s, own, previous)
        hashed = entry_hash(*row)
        connection.execute(
            "INSERT INTO decision_log VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*row, hashed, seal(OTHER_KEY, "log", hashed)),
        )


async def ruling_written_on_disk(stand: Stand) -> Any:
    record = (await stand.sign(key=OTHER_KEY)).model_dump()
    told = {"digest": record["proposal_digest"], "interrupt_id": record["interrupt_id"]}
    await write_entry(stand, "approved", **told, record=record)
    await stand.go()
    await take_last_back(stand)


async def answer_written_on_disk(stand: Stand) -> Any:
    record = (await stand.sign(key=OTHER_KEY)).model_dump()
    told = {"digest": record["proposal_digest"], "interrupt_id": record["interrupt_id"]}
    await write_entry(stand, "answered", **told, record=record)
    with pytest.raises(NotApprovedError, match="not as it was written"):
        stand.services.desk.find_answer(record["interrupt_id"])
    await take_last_back(stand)


async def take_last_back(stand: Stand) -> None:
    on_disk(stand.path, "DELETE FROM decision_log WHERE sequence = (SELECT max(sequence) FROM decision_log)")


async def display_changed_at_the_desk(stand: Stand) -> Any:
    """The request as the web shows it is swapped in the store; the desk must not sign for it."""
    swapped = swap_option(await stand.proposal())
    body = {**(await stand.interrupt()).value, "proposal": swapped}
    on_disk(stand.path, "UPDATE requests SET body = ?", (json.dumps(body),))
    assert stand.services.desk.list_open() == []
    for digest in ((await stand.proposal()).digest, Proposal.model_validate(swapped).digest):
        with pytest.raises(NotApprovedError, match="not the one"):
            stand.services.desk.submit((await stand.interrupt()).id, digest, APPROVE, "ann")


PROBES: dict[str, Probe] = {
    "resume false": answer_with("false"),
    "resume approve": answer_with("approve"),
    "resume true": answer_with(True),
    "resume a number": answer_with(1),
    "resume approve no": answer_with({"approve": "no"}),
    "resume approved true": answer_with({"approved": True}),
    "resume decision only": answer_with({"decision": "approve"}),
    "resume a list": answer_with([{"decision": "approve"}]),
    "resume empty": answer_with({}),
    "wrong enum case": tampered_with(decision="Approve"),
    "extra field": tampered_with(approved=True),
    "another option slipped in": tampered_with(option="C"),
    "longer life": tampered_with(expires_at_s=2_000_000_000),
    "other reviewer": tampered_with(reviewer="the board"),
    "signature of zeros": tampered_with(signature="0" * 64),
    "signature empty": tampered_with(signature=""),
    "forged signature": signed_with(key=OTHER_KEY),
    "another thread's": signed_with(thread="g/another"),
    "another interrupt's": signed_with(interrupt_id="0" * 32),
    "another digest": signed_with(proposal_digest="0" * 64),
    "expired": expired,
    "expired before the commit": expired_between_review_and_commit,
    "endless lifetime": endless_lifetime,
    "from the future": from_the_future,
    "state says approved": claim("review", ruling={"ruling": "approve", "approval": None}),
    "state says approved true": claim("review", ruling={"ruling": "approve", "approval": True}),
    "state says committed": claim("review", ruling={"ruling": "approve"}, committed="f" * 64),
    "as the commit node": committed_claimed,
    "as an executor": claim("execute_cto", delivered={"cto": "x"}),
    "as the outcome": claim("outcome", observation={"kpis": {}, "shock": ""}, status="completed"),
    "as the monitor": claim("monitor", alerts=[], status="completed"),
    "as the close node": claim("close", status="completed"),
    "proposal removed": claim("review", ruling={"ruling": "approve"}, proposal=None),
    "rejection claimed as approval": rejection_claimed_as_approval,
    "rejection turned into approval": rejection_turned_into_approval,
    "edit claimed as approval": edit_claimed_as_approval,
    "plan swapped after display": plan_swapped_after_display,
    "plan swapped after approval": plan_swapped_after_approval,
    "floors lowered after approval": plan_emptied_of_its_conditions,
    "older digest after edit": older_digest_after_edit,
    "older digest claimed after edit": older_digest_claimed_after_edit,
    "time travel": time_travel_to_the_first_display,
    "old plan written back": time_travel_and_old_plan_written_back,
    "approval after rejection": approval_after_rejection,
    "made-up interrupt": answer_to_a_made_up_interrupt,
    "goto commit": goto_commit,
    "goto an executor": goto_executor,
    "goto all executors": goto_all_executors,
    "update with resume": update_with_resume,
    "started anew": started_anew_with_an_approved_state,
    "copied into another thread": copied_into_another_thread,
    "checkpoint edited on disk": checkpoint_edited_on_disk,
    "request edited on disk": request_edited_on_disk,
    "ruling written on disk": ruling_written_on_disk,
    "answer written on disk": answer_written_on_disk,
    "display changed at the desk": display_changed_at_the_desk,
}

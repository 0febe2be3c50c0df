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

from simulator.governance.gate import LIFETIME_S
from simulator.governance.log import entry_hash
from simulator.governance.proposal import Proposal, ReviewResponse
from simulator.governance.runner import thread_config
from simulator.governance.seals import NotApprovedError, canonical_json, seal

Probe = Callable[[Stand], Awaitable[Any]]


APPROVE = ReviewResponse(decision="approve")


OTHER_OPTION = {"A": "B", "B": "C", "C": "A"}


def swap_option(proposal: Proposal) -> dict[str, Any]:
    """The same proposal with another option in its plan."""
    other = OTHER_OPTION[proposal.option]
    text = canonical_json(proposal.model_dump()).replace(f"option {proposal.option}", f"option {other}")
    return {**json.loads(text), "option": other}


async def until_review(stand: Stand) -> str:
    """Reject the first proposal honestly: a second request stands. The first request's name."""
    first = (await stand.request()).interrupt_id
    await stand.rule(ReviewResponse(decision="reject", feedback="no"))
    assert (await stand.request()).interrupt_id != first
    return first


async def stop_before_commit(stand: Stand) -> None:
    """Approve honestly, and stop between the review and the commit."""
    await stand.submit()
    await stand.graph.ainvoke(
        Command(resume=True),
        stand.config,
        context=stand.context,
        durability="sync",
        interrupt_before=["commit"],
    )
    assert (await stand.graph.aget_state(stand.config)).next == ("commit",)


def answer_with(value: Any) -> Probe:
    return lambda stand: stand.answer(value)


def past_desk(**changed: Any) -> Probe:
    return lambda stand: stand.rule_past_desk(**changed)


def claim(node: str, **values: Any) -> Probe:
    return lambda stand: stand.claim(values, node)


async def looks_like_an_answer(stand: Stand) -> Any:
    """The resume carries all that an answer in the log would hold."""
    request = await stand.request()
    names = {"digest": request.digest, "interrupt_id": request.interrupt_id, "thread": stand.thread}
    answer = {"decision": "approve", "reviewer": "ann", "expires_at_s": 2**40}
    return await stand.answer({**names, **answer, "kind": "approved", "signature": "0" * 64})


async def expired(stand: Stand) -> Any:
    await stand.submit()
    stand.clock.now_s += LIFETIME_S
    return await stand.answer(True)


async def expired_between_review_and_commit(stand: Stand) -> Any:
    await stop_before_commit(stand)
    stand.clock.now_s += LIFETIME_S + 1
    return await stand.go()


async def rejection_claimed_as_approval(stand: Stand) -> Any:
    await stand.submit(ReviewResponse(decision="reject"))
    return await stand.go(Command(goto="commit"))


async def edit_claimed_as_approval(stand: Stand) -> Any:
    await stand.submit(ReviewResponse(decision="edit", option="C"))
    return await stand.go(Command(goto="commit"))


async def older_digest_after_edit(stand: Stand) -> Any:
    """The first proposal is shown again by a claim after it was edited: its ruling is the edit."""
    old = await stand.proposal()
    await stand.rule(ReviewResponse(decision="edit", option="C"))
    assert await stand.proposal() != old
    return await stand.jump("commit", shown=1)


async def time_travel_to_the_first_display(stand: Stand) -> Any:
    before, old = (await stand.graph.aget_state(stand.config)).config, await stand.request()
    await until_review(stand)
    with pytest.raises(NotApprovedError):
        stand.services.gate.submit(old.interrupt_id, old.digest, APPROVE, "ann")
    return await stand.go(Command(resume=True), before)


async def approval_after_rejection(stand: Stand) -> Any:
    first = await until_review(stand)
    with pytest.raises(NotApprovedError, match="later request"):
        stand.services.gate.submit(first, (await stand.proposal()).digest, APPROVE, "ann")
    return await stand.go(Command(resume=True))


async def rejected_then_approved_past_the_desk(stand: Stand) -> Any:
    """The key's holder writes an approval of the request that was rejected."""
    first = await until_review(stand)
    return await stand.rule_past_desk(interrupt_id=first)


async def answer_to_a_made_up_interrupt(stand: Stand) -> Any:
    with pytest.raises(NotApprovedError, match="no such request"):
        stand.services.gate.submit("0" * 32, (await stand.proposal()).digest, APPROVE, "ann")
    return await stand.go(Command(resume={"0" * 32: True}))


async def goto_commit(stand: Stand) -> Any:
    return await stand.go(Command(goto="commit"))


async def goto_close(stand: Stand) -> Any:
    assert await stand.jump("close", status="completed") is None


async def goto_monitor(stand: Stand) -> Any:
    return await stand.jump("monitor", shown=1)


async def goto_executor(stand: Stand) -> Any:
    return await stand.go(Command(goto="execute_cto"))


async def goto_all_executors(stand: Stand) -> Any:
    return await stand.go(Command(goto=[f"execute_{role}" for role in stand.case.seats]))


async def update_with_resume(stand: Stand) -> Any:
    return await stand.go(Command(update={"shown": 1, "status": "completed"}, resume="approve"))


async def started_anew_with_an_approved_state(stand: Stand) -> Any:
    state = dict((await stand.graph.aget_state(stand.config)).values)
    return await stand.go(state | {"approved": True, "status": "completed"})


async def copied_into_another_thread(stand: Stand) -> Any:
    """The state of this thread, which is approved, in another one."""
    await stand.submit()
    state = dict((await stand.graph.aget_state(stand.config)).values)
    other = thread_config("elsewhere")
    await stand.graph.aupdate_state(other, state, as_node="propose")
    context = replace(stand.context, thread="elsewhere")
    assert await stand.go(None, other, context) is None
    assert await stand.go(Command(resume=True), other, context) is None


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


async def request_edited_on_disk(stand: Stand) -> Any:
    """The store notices at its next opening; a live process shows what it has verified."""
    swapped = swap_option(await stand.proposal())
    digest = Proposal.model_validate(swapped).digest
    old = (await stand.proposal()).digest
    on_disk(
        stand.path,
        "UPDATE decision_log SET body = replace(body, ?, ?) WHERE kind = 'requested'",
        (old, digest),
    )
    assert [one.digest for one in stand.services.gate.list_open()] == [old]
    with pytest.raises(NotApprovedError, match="not as it was written"):
        stand.services.log.verify(stand.thread)
    assert stand.services.gate.list_open() == []
    await stand.answer(True)
    on_disk(
        stand.path,
        "UPDATE decision_log SET body = replace(body, ?, ?) WHERE kind = 'requested'",
        (digest, old),
    )


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
    request = await stand.request()
    names = {"digest": request.digest, "interrupt_id": request.interrupt_id, "option": "A", "attempt": 0}
    told = {"reviewer": "ann", "to": None, "feedback": "", "expires_at_s": 2**40}
    await write_entry(stand, "approved", **names, **told)
    with pytest.raises(NotApprovedError, match="not as it was written"):
        stand.services.gate.find_answer(request.interrupt_id)
    assert await stand.answer(True) is None
    await take_last_back(stand)


async def take_last_back(stand: Stand) -> None:
    on_disk(stand.path, "DELETE FROM decision_log WHERE sequence = (SELECT max(sequence) FROM decision_log)")


async def another_digest_at_the_desk(stand: Stand) -> Any:
    swapped = Proposal.model_validate(swap_option(await stand.proposal()))
    with pytest.raises(NotApprovedError, match="not the one"):
        stand.services.gate.submit((await stand.request()).interrupt_id, swapped.digest, APPROVE, "ann")


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
    "resume what looks like an answer": looks_like_an_answer,
    "written for another reviewer": past_desk(reviewer="the board"),
    "written for another interrupt": past_desk(interrupt_id="0" * 32),
    "written as expired": past_desk(expires_at_s=0),
    "expired": expired,
    "expired before the commit": expired_between_review_and_commit,
    "as an executor": claim("execute_cto", status="approved"),
    "as the close node": claim("close", status="completed"),
    "rejection claimed as approval": rejection_claimed_as_approval,
    "edit claimed as approval": edit_claimed_as_approval,
    "older digest after edit": older_digest_after_edit,
    "time travel": time_travel_to_the_first_display,
    "approval after rejection": approval_after_rejection,
    "rejected, then approved past the desk": rejected_then_approved_past_the_desk,
    "made-up interrupt": answer_to_a_made_up_interrupt,
    "goto commit": goto_commit,
    "goto close": goto_close,
    "goto monitor": goto_monitor,
    "goto an executor": goto_executor,
    "goto all executors": goto_all_executors,
    "update with resume": update_with_resume,
    "started anew": started_anew_with_an_approved_state,
    "copied into another thread": copied_into_another_thread,
    "request edited on disk": request_edited_on_disk,
    "ruling written on disk": ruling_written_on_disk,
    "another digest at the desk": another_digest_at_the_desk,
}

"""What decides is the log alone: neither the graph's state, nor other rows, nor a log of another thread."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from finality_probes import next_superstep, stop
from gate_probes import APPROVE, on_disk, until_review
from governed_tables import Stand, stand_at_gate

from simulator.governance.gate.approvals import NotApprovedError, Proposal, ReviewResponse
from simulator.governance.outcomes import CarriedPlan, Observation, SimulatedOutcomes

REJECT = ReviewResponse(decision="reject", feedback="no")


class Collapse(SimulatedOutcomes):
    """A world in which every plan fails."""

    def observe(self, before: Sequence[CarriedPlan], plan: CarriedPlan) -> Observation:
        told = super().observe(before, plan)
        return Observation(**{**told, "kpis": dict.fromkeys(told["kpis"], 1)})


@asynccontextmanager
async def stand_at_second_plan(folder: Path) -> AsyncIterator[tuple[Stand, Proposal, Any]]:
    """The first plan was carried out and failed; the second waits. With the first and its checkpoint."""
    async with stand_at_gate(folder) as stand:
        stand.context = replace(stand.context, outcomes=Collapse(stand.case))
        first = await stand.proposal()
        await stop(stand, "monitor", (await stand.sign()).model_dump())
        before = (await stand.graph.aget_state(stand.config)).config
        await stand.go()
        assert stand.kinds().count("replanned") == 1
        assert (await stand.proposal()).attempt == 1
        yield stand, first, before


def test_of_two_approved_plans_one_is_carried_out(tmp_path: Path) -> None:
    """The first is committed; a second, for a claimed re-plan, is approved; then both are gone on with."""

    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            await stop(stand, "commit", (await stand.sign()).model_dump())
            await stand.graph.ainvoke(
                None, stand.config, context=stand.context, durability="sync", interrupt_after=["commit"]
            )
            before = (await stand.graph.aget_state(stand.config)).config
            await stand.claim({"attempt": 1, "ruling": None, "committed": ""}, "vote")
            with suppress(AssertionError):
                await stop(stand, "outcome", (await stand.sign()).model_dump())
            await stand.go(None, before)
            executed = [one.body["digest"] for one in stand.services.log.entries() if one.kind == "executed"]
            assert len(set(executed)) <= 1

    asyncio.run(run())


def test_a_plan_that_is_planned_anew_is_not_carried_out_again(tmp_path: Path) -> None:
    async def run() -> None:
        async with stand_at_second_plan(tmp_path) as (stand, first, _):
            await stop(stand, "commit", (await stand.sign()).model_dump())
            await stand.graph.aupdate_state(stand.config, {"proposal": first.model_dump()}, as_node="commit")
            num_executed = stand.count("executed")
            await stand.go()
            assert stand.count("executed") == num_executed
            with pytest.raises(NotApprovedError) as refused:
                stand.services.gate.require_in_force(first)
            assert refused.value.reason == "superseded"

    asyncio.run(run())


@pytest.mark.parametrize("claimed", ["monitor", "review"])
def test_a_case_is_not_closed_with_an_older_plan(claimed: str, tmp_path: Path) -> None:
    """The first plan stands in the state again while the second waits."""

    async def run() -> None:
        async with stand_at_second_plan(tmp_path) as (stand, first, _):
            values = {"proposal": first.model_dump(), "alerts": [], "refusals": 9}
            await stand.claim({**values, "ruling": {"ruling": "refused"}}, claimed)
            assert "closed" not in stand.kinds()

    asyncio.run(run())


def test_a_case_is_not_closed_while_its_latest_plan_waits(tmp_path: Path) -> None:
    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            await stand.claim({"ruling": {"ruling": "refused"}, "refusals": 9}, "review")
            assert "closed" not in stand.kinds()
            assert len(stand.services.desk.list_open()) == 1

    asyncio.run(run())


def test_no_reserve_is_set_free_without_an_alert(tmp_path: Path) -> None:
    """The state claims an alert on a plan that holds: nothing is planned anew, and no money is added."""

    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            await stop(stand, "monitor", (await stand.sign()).model_dump())
            await stand.graph.aupdate_state(
                stand.config, {"alerts": ["cto"], "attempt": 0}, as_node="monitor"
            )
            await stand.go()
            assert "replanned" not in stand.kinds()

    asyncio.run(run())


def test_a_replan_written_ahead_sets_nothing_free(tmp_path: Path) -> None:
    """Its effect is in the ledger before it happened, and the state says that it did."""

    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            budget, step = (await stand.proposal()).budget, await next_superstep(stand)
            digest = (await stand.proposal()).digest
            with sqlite3.connect(stand.path) as connection:
                for later in range(9):
                    for node in ("replan", "replan/replanned", "outcome/observed"):
                        row = (stand.thread, node, step + later, digest, "{}")
                        connection.execute("INSERT INTO effects VALUES (?, ?, ?, ?, ?)", row)
            connection.close()
            left = {"attempt": 1, "alerts": ["cto"], "observation": None, "ruling": None}
            await stand.graph.aupdate_state(stand.config, left, as_node="replan")
            await stand.go()
            assert {request.proposal.attempt for request in stand.services.desk.list_open()} == {0}
            assert {request.proposal.budget for request in stand.services.desk.list_open()} == {budget}

    asyncio.run(run())


def test_a_claimed_attempt_and_revision_are_not_displayed(tmp_path: Path) -> None:
    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            claimed = {"attempt": 2, "revision": 7, "edited": "C", "ruled_out": {"A": "x", "B": "x"}}
            await stand.graph.aupdate_state(stand.config, claimed, as_node="vote")
            await stand.go()
            shown = stand.services.desk.list_open()[0].proposal
            assert (shown.attempt, shown.revision) == (0, 0)
            assert shown.reserve > 0

    asyncio.run(run())


def test_a_rejection_of_another_thread_is_not_obeyed(tmp_path: Path) -> None:
    """The whole thread is copied under another name, interrupt and all; one is rejected, the other is not."""

    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            request = (await stand.interrupt()).id
            other = f"{stand.thread}/other"
            with sqlite3.connect(stand.path) as connection:
                for table in ("checkpoints", "checkpoint_writes"):
                    names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")][2:]
                    columns = ", ".join(names)
                    connection.execute(
                        f"INSERT INTO {table} (thread, {columns}) SELECT ?, {columns} FROM {table}", (other,)
                    )
            connection.close()
            await stand.answer((await stand.sign(REJECT)).model_dump())
            config: Any = {"configurable": {"thread_id": other}}
            context = replace(stand.context, thread=other, locate=stand.context.locate)
            state = await stand.graph.aget_state(config)
            proposal = {**state.values["proposal"], "thread": other}
            await stand.graph.aupdate_state(config, {"proposal": proposal}, as_node="propose")
            await stand.go(None, config, context)
            assert (await stand.graph.aget_state(config)).values["ruled_out"] == {}
            assert stand.services.gate.stand(other).find_settled(request) is None

    asyncio.run(run())


def test_the_case_that_is_named_is_the_one_whose_words_are_shown(tmp_path: Path) -> None:
    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            await stand.graph.aupdate_state(stand.config, {"case": "team/test/another"}, as_node="vote")
            await stand.go()
            assert {one.proposal.case for one in stand.services.desk.list_open()} == {stand.case.key}

    asyncio.run(run())


def test_what_changed_is_said_of_the_plan_that_was_shown(tmp_path: Path) -> None:
    """The plan before is taken from what was displayed, not from the state."""

    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            first = await stand.proposal()
            await stop(stand, "propose", (await stand.sign(REJECT)).model_dump())
            now = (await stand.graph.aget_state(stand.config)).values["proposal"]
            await stand.graph.aupdate_state(
                stand.config, {"proposal": {**now, "option": "Z", "budget": 7}}, as_node="vote"
            )
            await stand.go()
            changes = stand.services.desk.list_open()[0].proposal.changes
            assert not [change for change in changes if "Z before" in change or "7 before" in change]
            assert [change for change in changes if f"{first.option} before" in change]

    asyncio.run(run())


def test_what_was_carried_out_is_not_carried_out_again(tmp_path: Path) -> None:
    """Everything but the log is deleted between two executions."""

    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            await stop(stand, "outcome", (await stand.sign()).model_dump())
            proposal = await stand.proposal()
            with sqlite3.connect(stand.path) as connection:
                tables = [
                    row[0]
                    for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
                ]
                for table in tables:
                    if table not in ("decision_log", "checkpoints", "checkpoint_writes", "sqlite_sequence"):
                        connection.execute(f"DELETE FROM {table}")
            connection.close()
            for part in proposal.parts:
                stand.services.gate.deliver(proposal, part)
            assert stand.count("executed") == len(proposal.parts)

    asyncio.run(run())


def test_a_removed_reviewer_rules_no_more(tmp_path: Path) -> None:
    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            desk, (request,) = stand.services.desk, stand.services.desk.list_open()
            record = await stand.sign()
            desk.reviewers.remove("ann")
            with pytest.raises(NotApprovedError) as refused:
                desk.submit(request.interrupt_id, request.digest, APPROVE, "ann")
            assert refused.value.reason == "unregistered"
            await stand.answer(record.model_dump())
            assert stand.count("committed") == 0

    asyncio.run(run())


@pytest.mark.parametrize("change", ["removed", "seated"])
@pytest.mark.parametrize("whose", ["ann", "bob"])
@pytest.mark.parametrize("before", ["review", "commit"])
def test_all_who_approved_must_be_eligible_at_the_commit(
    change: str, whose: str, before: str, tmp_path: Path
) -> None:
    """One of two who approved is removed, or sits down at the table, before the plan is committed."""

    async def run() -> None:
        async with stand_at_gate(tmp_path, four_eyes=True) as stand:
            desk, (request,) = stand.services.desk, stand.services.desk.list_open()
            desk.reviewers.register("bob")
            for name in ("ann", "bob"):
                desk.submit(request.interrupt_id, request.digest, APPROVE, name)
            answer = desk.find_answer(request.interrupt_id)
            assert answer is not None
            if before == "commit":
                await stop(stand, "commit", answer)
            if change == "removed":
                desk.reviewers.remove(whose)
            else:
                desk.reviewers.note_seated(stand.thread, "cto", whose)
            await (stand.answer(answer) if before == "review" else stand.go())
            assert stand.count("committed") == 0

    asyncio.run(run())


def test_who_plays_an_extra_seat_does_not_rule_on_its_case(tmp_path: Path) -> None:
    """`legal` is a seat of the case as it was opened, though no report and no part of it is shown."""

    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            gate, proposal = stand.services.gate, await stand.proposal()
            thread = f"{stand.thread}/legal"
            gate.open_case(thread, "a case", 0, [*proposal.reports, "legal"])
            shown = proposal.model_copy(update={"thread": thread})
            stand.services.desk.reviewers.register("Legal")
            for name, is_refused in (("Legal", True), ("ann", False)):
                reason = ""
                try:
                    stand.services.desk.reviewers.require_may_rule(name, gate.stand(thread), shown)
                except NotApprovedError as error:
                    reason = error.reason
                assert reason == ("self_approval" if is_refused else "")

    asyncio.run(run())


def test_a_display_that_was_deleted_is_not_shown_anew_in_other_words(tmp_path: Path) -> None:
    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            await until_review(stand)
            on_disk(stand.path, "DELETE FROM requests")
            assert stand.services.desk.list_open() == []
            await stand.go()
            assert len(stand.services.desk.list_open()) == 1
            assert stand.count("requested") == 2

    asyncio.run(run())

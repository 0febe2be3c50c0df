"""What decides is the log alone: neither the graph's state, nor other rows, nor a log of another thread."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from finality_probes import stop
from gate_probes import APPROVE
from governed_tables import Stand, stand_at_gate

from reliability.governed.cases import KEY
from simulator.governance.outcomes import CarriedPlan, Observation, SimulatedOutcomes
from simulator.governance.proposal import ReviewResponse
from simulator.governance.runner import open_services, thread_config
from simulator.governance.seals import NotApprovedError

REJECT = ReviewResponse(decision="reject", feedback="no")


class Collapse(SimulatedOutcomes):
    """A world in which every plan fails."""

    def observe(self, before: Sequence[CarriedPlan], plan: CarriedPlan) -> Observation:
        told = super().observe(before, plan)
        return Observation(**{**told, "kpis": dict.fromkeys(told["kpis"], 1)})


@asynccontextmanager
async def stand_at_second_plan(folder: Path) -> AsyncIterator[Stand]:
    """The first plan was carried out and failed; the second waits."""
    async with stand_at_gate(folder) as stand:
        stand.context = replace(stand.context, outcomes=Collapse(stand.case))
        await stop(stand, "monitor", await stand.submit())
        await stand.go()
        assert stand.kinds().count("replanned") == 1
        assert (await stand.proposal()).attempt == 1
        yield stand


def test_of_two_approved_plans_one_is_carried_out(tmp_path: Path) -> None:
    """The first is committed; a second, for a claimed re-plan, is approved; then both are gone on with."""

    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            await stop(stand, "commit", await stand.submit())
            await stand.graph.ainvoke(
                None, stand.config, context=stand.context, durability="sync", interrupt_after=["commit"]
            )
            before = (await stand.graph.aget_state(stand.config)).config
            await stand.claim({"shown": 1}, "vote")
            assert stand.count("requested") == 2
            with suppress(AssertionError):
                await stop(stand, "monitor", await stand.submit())
            await stand.go(None, before)
            executed = [one.body["digest"] for one in stand.services.log.entries() if one.kind == "executed"]
            assert len(set(executed)) <= 1

    asyncio.run(run())


def test_a_plan_that_is_planned_anew_is_not_carried_out_again(tmp_path: Path) -> None:
    """The second is committed; then the state points to the first."""

    async def run() -> None:
        async with stand_at_second_plan(tmp_path) as stand:
            await stop(stand, "commit", await stand.submit())
            await stand.graph.ainvoke(
                None, stand.config, context=stand.context, durability="sync", interrupt_after=["commit"]
            )
            assert stand.count("committed") == 2
            await stand.jump("execute_cto", shown=1)
            executed = [
                (one.body["digest"], one.body["role"])
                for one in stand.services.log.find(stand.thread, "executed")
            ]
            assert len(executed) == len(set(executed))
            with pytest.raises(NotApprovedError) as refused:
                stand.services.gate.stand(stand.thread).require_in_force(0)
            assert refused.value.reason == "superseded"

    asyncio.run(run())


@pytest.mark.parametrize("node", ["monitor", "review", "commit", "replan", "close"])
def test_a_case_is_not_closed_with_an_older_plan(node: str, tmp_path: Path) -> None:
    """The state points to the first plan again while the second waits."""

    async def run() -> None:
        async with stand_at_second_plan(tmp_path) as stand:
            await stand.jump(node, shown=1)
            await stand.jump("close", shown=1)
            assert "closed" not in stand.kinds()
            assert stand.count("executed") == 4

    asyncio.run(run())


def test_a_case_is_not_closed_while_its_latest_plan_waits(tmp_path: Path) -> None:
    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            await stand.jump("close")
            assert "closed" not in stand.kinds()
            assert len(stand.services.gate.list_open()) == 1

    asyncio.run(run())


def test_no_reserve_is_set_free_without_an_alert(tmp_path: Path) -> None:
    """The plan holds: nothing is planned anew, and no money is added."""

    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            await stop(stand, "close", await stand.submit())
            assert await stand.jump("replan") is None
            assert "replanned" not in stand.kinds()

    asyncio.run(run())


def test_a_replan_that_is_claimed_sets_nothing_free(tmp_path: Path) -> None:
    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            budget = (await stand.proposal()).budget
            assert await stand.jump("replan") is None
            await stand.jump("reconcile")
            shown = stand.services.gate.list_open()[0].proposal
            assert (shown.attempt, shown.revision, shown.budget) == (0, 0, budget)
            assert shown.reserve > 0

    asyncio.run(run())


def test_a_rejection_of_another_thread_is_not_obeyed(tmp_path: Path) -> None:
    """The whole state stands under another name; one is rejected, the other is not."""

    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            request, other = (await stand.request()).interrupt_id, f"{stand.thread}/other"
            state = dict((await stand.graph.aget_state(stand.config)).values)
            await stand.rule(REJECT)
            config, context = thread_config(other), replace(stand.context, thread=other)
            await stand.graph.aupdate_state(config, state, as_node="vote")
            await stand.go(None, config, context)
            standing = stand.services.gate.stand(other)
            assert (standing.ruled_out, standing.revision) == ({}, 0)
            assert [one.ruling for one in standing.displays] == ["waiting"]
            assert standing.latest.interrupt_id != request

    asyncio.run(run())


def test_the_case_that_is_named_is_the_one_whose_words_are_shown(tmp_path: Path) -> None:
    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            await stand.graph.aupdate_state(stand.config, {"case": "team/test/another"}, as_node="vote")
            await stand.go()
            assert {one.proposal.case for one in stand.services.gate.list_open()} == {stand.case.key}

    asyncio.run(run())


@pytest.mark.parametrize("changed", [{"cost": 1}, {"worth": 500}, {"choice": ["gold"]}])
def test_a_part_that_the_case_does_not_have_is_not_displayed(changed: dict[str, Any], tmp_path: Path) -> None:
    """The reports in the state offer it: it is cheaper, worth more, or made up."""

    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            await stop(stand, "propose", await stand.submit(REJECT))
            reports = (await stand.graph.aget_state(stand.config)).values["reports"]
            forged = {
                seat: {
                    **said,
                    "parsed": {
                        **said["parsed"],
                        "offers": [{**offer, **changed} for offer in said["parsed"]["offers"]],
                    },
                }
                for seat, said in reports.items()
            }
            await stand.graph.aupdate_state(stand.config, {"reports": forged}, as_node="vote")
            await stand.go()
            assert stand.services.gate.list_open() == []
            await stand.graph.aupdate_state(stand.config, {"reports": reports}, as_node="vote")
            await stand.go()
            assert len(stand.services.gate.list_open()) == 1

    asyncio.run(run())


def test_precedents_that_the_state_claims_are_not_displayed(tmp_path: Path) -> None:
    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            claimed = {"case": "a case that held", "alerts": ["cost"] * 9}
            await stop(stand, "propose", await stand.submit(REJECT))
            await stand.graph.aupdate_state(stand.config, {"precedents": [claimed]}, as_node="vote")
            await stand.go()
            assert [one.proposal.precedents for one in stand.services.gate.list_open()] == [[]]

    asyncio.run(run())


@pytest.mark.parametrize("number", [-2, -1, 1, 7])
def test_the_number_of_a_request_that_the_state_claims_leads_to_no_second_commit(
    number: int, tmp_path: Path
) -> None:
    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            await stop(stand, "monitor", await stand.submit())
            for node in ("propose", "review", "vote", "commit", "execute_cto", "close"):
                await stand.jump(node, shown=number)
                await stand.answer(True)
            assert stand.count("committed") == 1
            assert stand.count("executed") == 4

    asyncio.run(run())


def test_what_was_carried_out_is_not_carried_out_again(tmp_path: Path) -> None:
    """Everything but the log is gone between two executions."""

    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            await stop(stand, "monitor", await stand.submit())
            async with open_services(stand.path, key=KEY, clock=stand.clock) as other:
                for seat in stand.case.seats:
                    other.gate.deliver(stand.thread, 0, seat)
            assert stand.count("executed") == len(stand.case.seats)

    asyncio.run(run())


def test_a_removed_reviewer_rules_no_more(tmp_path: Path) -> None:
    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            desk, (request,) = stand.services.gate, stand.services.gate.list_open()
            reviewers = stand.services.reviewers
            reviewers.remove("ann")
            with pytest.raises(NotApprovedError) as refused:
                desk.submit(request.interrupt_id, request.digest, APPROVE, "ann")
            assert refused.value.reason == "unregistered"
            with pytest.raises(NotApprovedError, match="nobody registered"):
                reviewers.remove("ann")
            await stand.rule_past_desk(reviewer="ann")
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
            desk, (request,) = stand.services.gate, stand.services.gate.list_open()
            reviewers = stand.services.reviewers
            reviewers.register("bob")
            for name in ("ann", "bob"):
                desk.submit(request.interrupt_id, request.digest, APPROVE, name)
            answer = desk.find_answer(request.interrupt_id)
            assert answer is not None
            if before == "commit":
                await stop(stand, "commit", answer)
            if change == "removed":
                reviewers.remove(whose)
            else:
                reviewers.note_seated(stand.thread, "cto", whose)
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
            stand.services.reviewers.register("Legal")
            for name, is_refused in (("Legal", True), ("ann", False)):
                reason = ""
                try:
                    stand.services.reviewers.require_may_rule(name, gate.stand(thread), shown)
                except NotApprovedError as error:
                    reason = error.reason
                assert reason == ("self_approval" if is_refused else "")

    asyncio.run(run())

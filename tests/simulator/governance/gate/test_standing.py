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
from simulator.governance.proposal import Proposal, ReviewResponse
from simulator.governance.runner import open_services, thread_config
from simulator.governance.seals import NotApprovedError

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
        await stop(stand, "monitor", await stand.submit())
        before = (await stand.graph.aget_state(stand.config)).config
        await stand.go()
        assert stand.kinds().count("replanned") == 1
        assert (await stand.proposal()).attempt == 1
        yield stand, first, before


def test_of_two_approved_plans_one_is_carried_out(tmp_path: Path) -> None:
    """The first is committed; a second, for a claimed re-plan, is approved; then both are gone on with."""

    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            await stop(stand, "commit", await stand.submit())
            await stand.graph.ainvoke(
                None, stand.config, context=stand.context, durability="sync", interrupt_after=["commit"]
            )
            before = (await stand.graph.aget_state(stand.config)).config
            await stand.claim({"attempt": 1, "ruling": "", "committed": ""}, "vote")
            with suppress(AssertionError):
                await stop(stand, "outcome", await stand.submit())
            await stand.go(None, before)
            executed = [one.body["digest"] for one in stand.services.log.entries() if one.kind == "executed"]
            assert len(set(executed)) <= 1

    asyncio.run(run())


def test_a_plan_that_is_planned_anew_is_not_carried_out_again(tmp_path: Path) -> None:
    async def run() -> None:
        async with stand_at_second_plan(tmp_path) as (stand, first, _):
            await stop(stand, "commit", await stand.submit())
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
            await stand.claim({**values, "ruling": "refused"}, claimed)
            assert "closed" not in stand.kinds()

    asyncio.run(run())


def test_a_case_is_not_closed_while_its_latest_plan_waits(tmp_path: Path) -> None:
    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            await stand.claim({"ruling": "refused", "refusals": 9}, "review")
            assert "closed" not in stand.kinds()
            assert len(stand.services.desk.list_open()) == 1

    asyncio.run(run())


def test_no_reserve_is_set_free_without_an_alert(tmp_path: Path) -> None:
    """The state claims an alert on a plan that holds: nothing is planned anew, and no money is added."""

    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            await stop(stand, "monitor", await stand.submit())
            await stand.graph.aupdate_state(
                stand.config, {"alerts": ["cto"], "attempt": 0}, as_node="monitor"
            )
            await stand.go()
            assert "replanned" not in stand.kinds()

    asyncio.run(run())


def test_a_replan_that_is_claimed_sets_nothing_free(tmp_path: Path) -> None:
    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            budget = (await stand.proposal()).budget
            left = {"attempt": 1, "alerts": ["cto"], "ruling": ""}
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
    """The whole state stands under another name; one is rejected, the other is not."""

    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            request, other = (await stand.request()).interrupt_id, f"{stand.thread}/other"
            state = dict((await stand.graph.aget_state(stand.config)).values)
            await stand.rule(REJECT)
            config, context = thread_config(other), replace(stand.context, thread=other)
            proposal = {**state["proposal"], "thread": other}
            await stand.graph.aupdate_state(config, {**state, "proposal": proposal}, as_node="propose")
            await stand.go(None, config, context)
            assert (await stand.graph.aget_state(config)).values["ruled_out"] == {}
            assert stand.services.gate.stand(other).find_settled(request) is None
            assert stand.services.gate.stand(other).find("requested") != []

    asyncio.run(run())


def test_the_case_that_is_named_is_the_one_whose_words_are_shown(tmp_path: Path) -> None:
    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            await stand.graph.aupdate_state(stand.config, {"case": "team/test/another"}, as_node="vote")
            await stand.go()
            assert {one.proposal.case for one in stand.services.desk.list_open()} == {stand.case.key}

    asyncio.run(run())


def _buy_for_nothing(proposal: dict[str, Any]) -> dict[str, Any]:
    """A funded part for 1 k$, and a sum that fits."""
    funded = next(part for part in proposal["parts"] if part["choice"])
    parts = [{**part, "cost": 1} if part == funded else part for part in proposal["parts"]]
    return {"parts": parts, "cost": sum(part["cost"] for part in parts)}


def _buy_more(proposal: dict[str, Any]) -> dict[str, Any]:
    """Parts that cost more than the sum that is shown."""
    return {"parts": [{**part, "cost": part["cost"] + 100} for part in proposal["parts"]]}


@pytest.mark.parametrize(
    "tamper",
    [
        lambda _: {"words": {"title": "Lunch", "context": "harmless", "meanings": {}}},
        lambda _: {"case": "team/test/another"},
        lambda shown: {"budget": shown["budget"] + shown["reserve"]},
        lambda _: {"attempt": 2},
        lambda _: {"revision": 7},
        lambda _: {"reserve": 0},
        lambda _: {"cost": 0},
        _buy_more,
        _buy_for_nothing,
        lambda shown: {"parts": [{**part, "role": "legal"} for part in shown["parts"]]},
    ],
    ids=["words", "case", "budget", "attempt", "revision", "reserve", "cost", "more", "cheaper", "seat"],
)
def test_a_proposal_of_the_state_is_displayed_only_as_the_case_has_it(tamper: Any, tmp_path: Path) -> None:
    """It is changed after it was made: nobody is shown it, so that nobody approves it."""

    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            await stop(stand, "review", await stand.submit(REJECT))
            made = (await stand.graph.aget_state(stand.config)).values["proposal"]
            assert any(part["choice"] for part in made["parts"])
            changed = {**made, **tamper(made)}
            await stand.graph.aupdate_state(stand.config, {"proposal": changed}, as_node="propose")
            await stand.go()
            assert stand.services.desk.list_open() == []
            await stand.graph.aupdate_state(stand.config, {"proposal": made}, as_node="propose")
            await stand.go()
            assert [one.proposal.model_dump() for one in stand.services.desk.list_open()] == [made]

    asyncio.run(run())


def test_what_changed_is_said_of_the_plan_that_was_shown(tmp_path: Path) -> None:
    """The plan before is taken from what was displayed, not from the state."""

    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            first = await stand.proposal()
            await stop(stand, "propose", await stand.submit(REJECT))
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
    """Everything but the log is gone between two executions."""

    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            await stop(stand, "outcome", await stand.submit())
            proposal = await stand.proposal()
            async with open_services(stand.path, key=KEY, clock=stand.clock) as other:
                for part in proposal.parts:
                    other.gate.deliver(proposal, part)
            assert stand.count("executed") == len(proposal.parts)

    asyncio.run(run())


def test_a_removed_reviewer_rules_no_more(tmp_path: Path) -> None:
    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            desk, (request,) = stand.services.desk, stand.services.desk.list_open()
            desk.reviewers.remove("ann")
            with pytest.raises(NotApprovedError) as refused:
                desk.submit(request.interrupt_id, request.digest, APPROVE, "ann")
            assert refused.value.reason == "unregistered"
            with pytest.raises(NotApprovedError, match="nobody registered"):
                desk.reviewers.remove("ann")
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

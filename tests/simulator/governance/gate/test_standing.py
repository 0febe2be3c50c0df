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
            await stand.graph.aupdate_state(config, state, as_node="vote")
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


def _ease_parts(shown: dict[str, Any], **eased: Any) -> dict[str, Any]:
    return {"parts": [{**part, **eased} for part in shown["parts"]]}


TAMPERS: dict[str, Any] = {
    "words": lambda _: {"words": {"title": "Lunch", "context": "harmless", "meanings": {}}},
    "case": lambda _: {"case": "team/test/another"},
    "budget": lambda shown: {"budget": shown["budget"] + shown["reserve"]},
    "attempt": lambda _: {"attempt": 2},
    "revision": lambda _: {"revision": 7},
    "reserve": lambda _: {"reserve": 0},
    "cost": lambda _: {"cost": 0},
    "worth": lambda _: {"worth": 999},
    "more": lambda shown: _ease_parts(shown, cost=100),
    "floors": lambda shown: _ease_parts(shown, kpi_floor=0, most_lost=999),
    "seat": lambda shown: _ease_parts(shown, role="legal"),
    "risk": lambda _: {"risk_score": 0, "decision_type": "escalation"},
    "options": lambda shown: {"options": [{**one, "worth": 1} for one in shown["options"]]},
    "accountable": lambda _: {"accountable": "nobody"},
    "precedents": lambda _: {"precedents": ["a case that held"]},
    "conditions": lambda _: {"conditions": ["the board has agreed"]},
}


@pytest.mark.parametrize("name", TAMPERS)
def test_a_proposal_that_is_written_into_the_state_is_neither_displayed_nor_carried_out(
    name: str, tmp_path: Path
) -> None:
    """The proposal in the state is changed after it was made; people are shown the one that was made."""

    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            await stop(stand, "review", await stand.submit(REJECT))
            made = (await stand.graph.aget_state(stand.config)).values["proposal"]
            assert any(part["choice"] for part in made["parts"])
            changed = {**made, **TAMPERS[name](made)}
            assert changed != made
            await stand.graph.aupdate_state(stand.config, {"proposal": changed}, as_node="propose")
            await stand.go()
            assert [one.proposal.model_dump() for one in stand.services.desk.list_open()] == [made]
            assert (await stand.request()).proposal.model_dump() == made
            await stand.rule()
            executed = {one.body["digest"] for one in stand.services.log.find(stand.thread, "executed")}
            assert executed <= {Proposal.model_validate(made).digest}

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
            assert stand.services.desk.list_open() == []
            await stand.graph.aupdate_state(stand.config, {"reports": reports}, as_node="vote")
            await stand.go()
            assert len(stand.services.desk.list_open()) == 1

    asyncio.run(run())


def test_precedents_that_the_state_claims_are_not_displayed(tmp_path: Path) -> None:
    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            claimed = {"case": "a case that held", "alerts": ["cost"] * 9}
            await stop(stand, "propose", await stand.submit(REJECT))
            await stand.graph.aupdate_state(stand.config, {"precedents": [claimed]}, as_node="vote")
            await stand.go()
            assert [one.proposal.precedents for one in stand.services.desk.list_open()] == [[]]

    asyncio.run(run())


@pytest.mark.parametrize("number", [-2, -1, 1, 7])
def test_the_number_of_a_request_that_the_state_claims_leads_to_no_second_commit(
    number: int, tmp_path: Path
) -> None:
    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            await stop(stand, "outcome", await stand.submit())
            for node in ("propose", "review", "vote"):
                await stand.claim({"shown": number, "ruling": "approve"}, node)
                await stand.answer(True)
            assert stand.count("committed") == 1
            assert stand.count("executed") == 4

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

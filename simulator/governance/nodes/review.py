"""Nodes of the human gate: the proposal is made, reviewed, and committed once it is approved."""

from typing import Any

from langgraph.runtime import Runtime

from roles.team import NO_OPTION
from simulator.governance.case_words import list_changes
from simulator.governance.context import FullContext, make_effect_key, read_proposal
from simulator.governance.gate.approvals import Proposal, ReportLine
from simulator.governance.gate.request_form import ReviewRequest
from simulator.governance.gate.requests import Settled
from simulator.governance.judgement import judge, read_reports
from simulator.governance.nodes.opening import assign_duty
from simulator.governance.resolution import make_parts
from simulator.governance.state import FullState
from simulator.graph.state import Update


async def propose(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """Make the proposal: all that is displayed and carried out, an edited one from the reviewer's option."""
    resolution = judge(state)
    duty = state["duty"] or assign_duty(list(state["briefs"]), state["precedents"])
    proposal = Proposal(
        thread=runtime.context.thread,
        case=state["case"],
        attempt=state["attempt"],
        revision=state["revision"],
        option=resolution.option,
        decision_type=resolution.decision_type,
        risk_score=resolution.risk_score,
        option_scores=resolution.option_scores,
        conflicts=resolution.conflicts,
        conditions=resolution.conditions,
        accountable=duty["accountable"],
        parts=make_parts(duty["responsible"], resolution),
        precedents=[precedent["case"] for precedent in state["precedents"]],
        words=runtime.context.words,
        reports=_list_reports(state),
        changes=[],
    )
    proposal = proposal.model_copy(update={"changes": list_changes(state["proposal"], proposal)})
    return {"proposal": proposal.model_dump(), "ruling": None, "committed": ""}


async def review(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """Display the proposal and wait; judge the answer. Only what the gate settles has an effect."""
    context = runtime.context
    proposal = read_proposal(state, context)
    interrupt_id = context.locate().interrupt_id
    settled = context.gate.requests.find_settled(interrupt_id)
    if settled is None:
        request = _make_request(state, proposal, interrupt_id)
        context.gate.requests.open(interrupt_id, proposal, request)
        settled = context.gate.settle(interrupt_id, proposal, context.ask(request))
    return _apply_ruling(state, proposal, settled)


async def commit(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """Verify the approval anew and use it up: from here on exactly this proposal may be carried out."""
    context = runtime.context
    proposal = read_proposal(state, context)
    approval = (state["ruling"] or {}).get("approval")
    key = make_effect_key(context, "commit", proposal.digest)

    refused = context.ledger.perform(key, lambda: context.gate.commit(proposal, approval), durable=True)
    return _refused(state, refused) if refused else {"committed": proposal.digest}


def _list_reports(state: FullState) -> dict[str, ReportLine | None]:
    return {
        role: None if report is None else ReportLine(**report.model_dump())
        for role, report in read_reports(state).items()
    }


def _make_request(state: FullState, proposal: Proposal, interrupt_id: str) -> dict[str, Any]:
    request = ReviewRequest(
        thread=proposal.thread,
        interrupt_id=interrupt_id,
        digest=proposal.digest,
        proposal=proposal,
        refusal=state["refusal"],
    )
    return request.model_dump()


def _apply_ruling(state: FullState, proposal: Proposal, settled: Settled) -> Update:
    ruling, option = settled["ruling"], settled["option"]
    if ruling == "refused":
        return _refused(state, settled["reason"])
    if ruling == "edit" and option not in (*state["options"], NO_OPTION):
        return _refused(state, "unknown_option")
    update: Update = {"ruling": dict(settled), "refusal": ""}
    if ruling == "approve":
        return update
    update |= {"revision": state["revision"] + 1, "edited": option}
    if ruling == "reject":
        update |= {
            "round": 0,
            "redraft_reason": f"The reviewer rejects {proposal.option}. {settled['feedback']}".strip(),
        }
        if proposal.option != NO_OPTION:
            update["ruled_out"] = {**state["ruled_out"], proposal.option: "the reviewer rejected it"}
    return update


def _refused(state: FullState, reason: str) -> Update:
    return {
        "ruling": {"ruling": "refused"},
        "refusal": reason,
        "refusals": state["refusals"] + 1,
        "committed": "",
    }

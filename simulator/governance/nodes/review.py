"""Nodes of the human gate: the proposal is made, reviewed, and committed once it is approved."""

import re
from typing import Any

from langgraph.runtime import Runtime

from roles.team import NO_OPTION
from scenarios.team.offers import CheckedReport
from simulator.governance.case_words import list_changes
from simulator.governance.context import FullContext, make_effect_key, read_proposal
from simulator.governance.duties import assign_duty
from simulator.governance.gate.approvals import OfferLine, Proposal, ReportLine, refuse
from simulator.governance.gate.request_form import ReviewRequest
from simulator.governance.gate.requests import Settled
from simulator.governance.judgement import judge, read_draft, read_table
from simulator.governance.resolution import Resolution, make_parts
from simulator.governance.state import FullState
from simulator.graph.state import Update

REFUSAL = re.compile(r"[a-z_]{0,20}")


async def propose(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """Make the proposal: all that is displayed and carried out, an edited one from the reviewer's option."""
    context = runtime.context
    case = context.course.case
    resolution = judge(state, case.public)
    parts = make_parts(list(state["briefs"]), resolution)
    duty = assign_duty(list(state["briefs"]), parts, state["precedents"])
    draft = None if state["edited"] is not None else read_draft(state)
    proposal = Proposal(
        thread=context.thread,
        case=state["case"],
        attempt=state["attempt"],
        revision=state["revision"],
        option=resolution.option,
        reason="" if draft is None else draft.reason,
        decision_type=resolution.decision_type,
        risk_score=resolution.risk_score,
        options=resolution.options,
        budget=case.public.budget,
        reserve=0 if state["attempt"] else context.outcomes.reserve,
        cost=resolution.cost,
        worth=resolution.worth,
        conflicts=resolution.conflicts,
        conditions=resolution.conditions,
        responsible=duty["responsible"],
        accountable=duty["accountable"],
        consulted=duty["consulted"],
        parts=parts,
        precedents=[precedent["case"] for precedent in state["precedents"]],
        words=context.words.model_copy(update={"context": case.public.situation or context.words.context}),
        reports=_list_reports(state, resolution),
        changes=[],
    )
    proposal = proposal.model_copy(update={"changes": list_changes(state["proposal"], proposal)})
    return {"proposal": proposal.model_dump(), "duty": duty, "ruling": None, "committed": ""}


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


def _list_reports(state: FullState, resolution: Resolution) -> dict[str, ReportLine | None]:
    return {
        role: None if report is None else _spell_report(report, resolution)
        for role, report in read_table(state).items()
    }


def _spell_report(report: CheckedReport, resolution: Resolution) -> ReportLine:
    return ReportLine(
        offers=[
            OfferLine(
                option=offer.option,
                part=list(offer.choice),
                cost=offer.cost,
                worth=offer.worth,
                is_funded=offer in resolution.funded,
            )
            for offer in report.offers
        ],
        needs=list(report.needs),
        veto=list(report.veto),
        note=report.note,
        num_false_claims=len(report.false_claims),
    )


def _make_request(state: FullState, proposal: Proposal, interrupt_id: str) -> dict[str, Any]:
    request = ReviewRequest(
        thread=proposal.thread,
        interrupt_id=interrupt_id,
        digest=proposal.digest,
        proposal=proposal,
        refusal=_read_refusal(state),
    )
    return request.model_dump()


def _read_refusal(state: FullState) -> str:
    """Read why the answer before did not count: one word of the gate's, for it is not under the digest."""
    if not REFUSAL.fullmatch(state["refusal"]):
        refuse("tampered", "the state holds no reason of a refusal")
    return state["refusal"]


def _apply_ruling(state: FullState, proposal: Proposal, settled: Settled) -> Update:
    ruling, option = settled["ruling"], settled["option"]
    if ruling == "refused":
        return _refused(state, settled["reason"])
    if ruling == "edit" and option not in (*state["options"], NO_OPTION):
        return _refused(state, "unknown_option")
    open_options = [line.option for line in proposal.options if line.worth is not None]
    if ruling == "edit" and option not in (*open_options, NO_OPTION):
        return _refused(state, "cannot_be_run")
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

"""Nodes of the human gate: the proposal is made, reviewed, and committed once it is approved."""

from langgraph.runtime import Runtime

from roles.team import NO_OPTION
from scenarios.team.offers import CheckedReport
from simulator.governance.case_words import list_changes
from simulator.governance.context import FullContext, read_proposal
from simulator.governance.duties import assign_duty
from simulator.governance.gate.approvals import OfferLine, Proposal, ReportLine
from simulator.governance.gate.request_form import ReviewRequest
from simulator.governance.gate.standing import Settled
from simulator.governance.judgement import judge, read_draft, read_table
from simulator.governance.resolution import Resolution, make_parts
from simulator.governance.state import FullState
from simulator.graph.state import Update


async def propose(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """Make the proposal: all that is displayed and carried out, an edited one from the reviewer's option.

    What people ruled, what was spent and which plan was shown before is the log's to say.
    """
    context = runtime.context
    case, standing = context.course.case, context.gate.stand(context.thread)
    state = {
        **state,
        "attempt": standing.attempt,
        "revision": standing.revision,
        "edited": standing.edited,
        "ruled_out": standing.ruled_out,
    }
    resolution = judge(state, case.public)
    parts = make_parts(list(state["briefs"]), resolution)
    duty = assign_duty(list(state["briefs"]), parts, state["precedents"])
    draft = None if state["edited"] is not None else read_draft(state)
    proposal = Proposal(
        thread=context.thread,
        case=case.key,
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
    shown = standing.find("requested")
    before = context.gate.requests.read(shown[-1].body["interrupt_id"]).body["proposal"] if shown else None
    proposal = proposal.model_copy(update={"changes": list_changes(before, proposal)})
    return {"proposal": proposal.model_dump(), "duty": duty, "ruling": None, "committed": ""}


async def review(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """Display the proposal and wait; judge the answer. Only what the gate settles has an effect."""
    context = runtime.context
    proposal = read_proposal(state, context)
    interrupt_id = context.locate().interrupt_id
    standing = context.gate.stand(context.thread)
    settled = standing.find_settled(interrupt_id)
    if settled is None:
        request = ReviewRequest(
            thread=proposal.thread,
            interrupt_id=interrupt_id,
            digest=proposal.digest,
            proposal=proposal,
            refusal=standing.refusal,
        ).model_dump()
        context.gate.requests.open(interrupt_id, proposal, request)
        settled = context.gate.settle(interrupt_id, proposal, context.ask(request))
    return _apply_ruling(state, proposal, settled)


async def commit(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """Let the gate verify the approval anew: from here on exactly this proposal may be carried out."""
    proposal = read_proposal(state, runtime.context)
    refused = runtime.context.gate.commit(proposal)
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


def _apply_ruling(state: FullState, proposal: Proposal, settled: Settled) -> Update:
    ruling, option = settled["ruling"], settled["option"]
    if ruling == "refused":
        return _refused(state, settled["reason"])
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

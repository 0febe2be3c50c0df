"""The nodes of the governed graph: state and services in, update of the state out; each is testable alone.

All are coroutines: LangGraph runs plain functions in a thread pool. What writes to the store does so through
the effects ledger, so that a node that runs again does nothing twice.
"""

from collections import Counter
from functools import partial
from typing import Any, Protocol

from langgraph.runtime import Runtime

from roles.errors import UserError
from roles.team import NO_OPTION, RECONCILER, Decision, SpecialistReport
from scenarios.team import decision_brief, parse_vote, vote_brief
from simulator.governance.gate.approvals import NotApprovedError, Proposal
from simulator.governance.gate.gate import Settled
from simulator.governance.gate.reviewers import ReportLine, ReviewRequest
from simulator.governance.precedents import Precedent, list_features
from simulator.governance.resolution import Resolution, make_parts, resolve
from simulator.governance.state import Attempt, Duty, FullContext, FullState, Place, read_proposal
from simulator.governance.store.database import digest_json
from simulator.governance.store.effects import EffectKey
from simulator.graph.concurrency import run_all
from simulator.graph.team_graph import Update, Utterance, make_utterance, objection_brief

MAX_BRIEF_CHARS = 20_000


class FullNode(Protocol):
    """A node of the governed graph."""

    async def __call__(self, state: FullState, *, runtime: Runtime[FullContext]) -> Update: ...


async def intake(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """Check the case and recall similar past ones.

    Raises:
        UserError: no option or one twice, no seat, or a brief that is empty or longer than 20,000 characters.
    """
    check_case(state)
    recalled = runtime.context.precedents.recall(list_features(state["briefs"]), runtime.context.horizon)
    return {"precedents": recalled}


async def dispatch(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """Say who does what: every seat of the case reports, one seat answers for the result."""
    return {"duty": assign_duty(list(state["briefs"]), state["precedents"])}


def make_specialist(role: str) -> FullNode:
    """The node in which one specialist reads its own brief and reports."""

    async def specialist(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
        context = runtime.context
        asked = [state["briefs"][role]]
        text = await context.voices.say("report", context.locate().superstep, role, asked)
        return {"reports": {role: make_utterance(text, context.read_report(text))}, "asked": {role: asked}}

    return specialist


async def reconcile(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """ReconcileGPT drafts: from the reports, from objections, or from what a rejection or execution told."""
    context = runtime.context
    asked = [*state["asked"].get(RECONCILER, []), _draft_message(state)]
    text = await context.voices.say("reconcile", context.locate().superstep, RECONCILER, asked)
    return {
        "decision": make_utterance(text, context.read_decision(text)),
        "round": state["round"] + 1,
        "asked": {RECONCILER: asked},
        "votes": {},
        "news": "",
    }


async def vote(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """All specialists accept the draft or object to it, at once, each in its own transcript."""
    context = runtime.context
    question = vote_brief(_draft(state))
    asked = {role: [*state["asked"].get(role, []), question] for role in state["briefs"]}
    superstep = context.locate().superstep
    texts = await run_all(context.voices.say("vote", superstep, role, asked[role]) for role in asked)
    votes = {
        role: Utterance(text=text, parsed=parse_vote(text)) for role, text in zip(asked, texts, strict=True)
    }
    return {"votes": votes, "asked": asked}


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
    )
    return {"proposal": proposal.model_dump(), "ruling": None, "committed": ""}


async def review(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """Display the proposal and wait; judge the answer. Only what the gate settles has an effect."""
    context = runtime.context
    proposal = read_proposal(state, context)
    interrupt_id = context.locate().interrupt_id
    settled = context.gate.find_settled(interrupt_id)
    if settled is None:
        request = _make_request(state, proposal, interrupt_id)
        context.gate.open_request(interrupt_id, proposal, request)
        settled = context.gate.settle(interrupt_id, proposal, context.ask(request))
    return _apply_ruling(state, proposal, settled)


async def commit(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """Verify the approval anew and use it up: from here on exactly this proposal may be carried out."""
    context = runtime.context
    proposal = read_proposal(state, context)
    approval = (state["ruling"] or {}).get("approval")
    key = _key(context, "commit", context.locate(), proposal.digest)

    def act() -> dict[str, Any]:
        context.gate.commit(proposal, approval)
        return {"committed": proposal.digest}

    try:
        done: dict[str, Any] = context.ledger.perform(key, act, durable=True)
    except NotApprovedError as error:
        _log_once(context, key, "refused", {"digest": proposal.digest, "reason": error.reason})
        return _refused(state, error.reason)
    return done


def make_executor(role: str) -> FullNode:
    """The node in which one seat carries out its part of the committed proposal.

    Raises NotApprovedError where nothing was committed: the way to it did not lead through the gate.
    """

    async def execute(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
        context = runtime.context
        proposal = read_proposal(state, context)
        digest = proposal.digest
        context.gate.require_commit(proposal)
        part = next((part for part in proposal.parts if part.role == role), None)
        if part is None:
            return {}
        key = _key(context, f"execute_{role}", context.locate(), digest)
        context.ledger.perform(key, partial(context.gate.deliver, proposal, part))
        return {"delivered": {role: digest}}

    return execute


async def outcome(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """Let the world answer; only what can be observed comes back."""
    context = runtime.context
    proposal = read_proposal(state, context)
    context.gate.require_commit(proposal)
    observation = context.outcomes.observe(proposal.option, proposal.parts)
    key = _key(context, "outcome", context.locate(), proposal.digest)
    _log_once(context, key, "observed", {"digest": proposal.digest, **observation})
    return {"observation": observation}


async def monitor(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """Hold every KPI against its floor; a part without a KPI is an alert."""
    proposal = read_proposal(state, runtime.context)
    observation = state["observation"]
    if observation is None:
        raise ValueError("nothing was observed")
    kpis = observation["kpis"]
    alerts = [part.role for part in proposal.parts if kpis.get(part.role, -1) < part.kpi_floor]
    attempt = Attempt(
        attempt=state["attempt"],
        option=proposal.option,
        kpis=kpis,
        shock=observation["shock"],
        alerts=alerts,
    )
    return {"alerts": alerts, "history": [attempt]}


async def replan(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """Open the case again with what execution revealed: the option is out, and everybody is told why."""
    context = runtime.context
    proposal = read_proposal(state, context)
    last = state["history"][-1]
    figures = " ".join(f"{role} {last['kpis'].get(role, 0)}" for role in last["alerts"])
    why = f"execution broke it ({figures} percent)"
    body = {"digest": proposal.digest, "option": proposal.option, "alerts": last["alerts"]}
    _log_once(context, _key(context, "replan", context.locate(), proposal.digest), "replanned", body)
    return {
        "attempt": state["attempt"] + 1,
        "round": 0,
        "votes": {},
        "edited": None,
        "ruling": None,
        "committed": "",
        "observation": None,
        "ruled_out": {**state["ruled_out"], proposal.option: why},
        "news": f"Execution of {proposal.option} failed: {figures}.",
    }


async def close(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """End the case: its status comes from the gate, not from the state; it becomes a precedent."""
    context = runtime.context
    proposal = read_proposal(state, context)
    status = find_status(context, proposal, state["alerts"])
    precedent = Precedent(
        case=state["case"], option=proposal.option, status=status, alerts=list(state["alerts"])
    )

    def act() -> str:
        context.log.append(context.thread, "closed", {"digest": proposal.digest, "status": status})
        context.precedents.add(context.thread, list_features(state["briefs"]), precedent)
        return status

    return {"status": context.ledger.perform(_key(context, "close", context.locate(), proposal.digest), act)}


def check_case(state: FullState) -> None:
    """Refuse a case that cannot be played.

    Raises:
        UserError: names what is wrong.
    """
    case, options = state["case"], state["options"]
    if not options or len(set(options)) != len(options) or NO_OPTION in options:
        raise UserError(
            f"case {case!r}: options {options} must be different names, none of them {NO_OPTION!r}"
        )
    if not state["briefs"]:
        raise UserError(f"case {case!r} has no seat; give at least one specialist a brief")
    for role, brief in state["briefs"].items():
        if not brief.strip() or len(brief) > MAX_BRIEF_CHARS:
            raise UserError(
                f"case {case!r}: the brief of {role!r} has {len(brief)} characters; "
                f"write 1 to {MAX_BRIEF_CHARS}"
            )


def assign_duty(seats: list[str], precedents: list[Precedent]) -> Duty:
    """RACI. Accountable is the seat whose KPI fell most often in the recalled cases, else the first seat."""
    fallen = Counter(role for precedent in precedents for role in precedent["alerts"] if role in seats)
    accountable = max(seats, key=lambda role: fallen[role])
    return Duty(
        responsible=seats,
        accountable=accountable,
        consulted=[role for role in seats if role != accountable],
        informed=["reviewer"],
    )


def judge(state: FullState) -> Resolution:
    """The state's draft, or the reviewer's own option, in plain code."""
    edited = state["edited"]
    if edited is not None:
        decision = Decision(option=edited, escalate=edited == NO_OPTION)
        return resolve(
            state["options"], _reports(state), decision, ruled_out=state["ruled_out"], is_overruling=True
        )
    return resolve(
        state["options"],
        _reports(state),
        _draft(state),
        objectors=list_objectors(state),
        ruled_out=state["ruled_out"],
    )


def list_objectors(state: FullState) -> list[str]:
    """The seats that object to the last draft."""
    return [role for role, vote in state["votes"].items() if vote["parsed"] == "object"]


def find_status(context: FullContext, proposal: Proposal, alerts: list[str]) -> str:
    """completed, completed_with_alerts, handed_over (committed, nothing to carry out) or not_approved."""
    if not context.gate.is_committed(proposal):
        return "not_approved"
    if not proposal.parts:
        return "handed_over"
    if set(context.gate.list_delivered(proposal)) != {part.role for part in proposal.parts}:
        return "not_approved"
    return "completed_with_alerts" if alerts else "completed"


def _draft(state: FullState) -> Decision | None:
    parsed = state["decision"] and state["decision"]["parsed"]
    return Decision.model_validate(parsed) if parsed else None


def _reports(state: FullState) -> dict[str, SpecialistReport | None]:
    parsed = {role: state["reports"][role]["parsed"] for role in state["briefs"]}
    return {role: value and SpecialistReport.model_validate(value) for role, value in parsed.items()}


def _draft_message(state: FullState) -> str:
    """What ReconcileGPT reads now; an option that is out looks like a vetoed one."""
    if state["round"] > 0:
        return objection_brief(list_objectors(state))
    out = list(state["ruled_out"])
    reports = {
        role: report and report.model_copy(update={"veto": sorted({*report.veto, *out})})
        for role, report in _reports(state).items()
    }
    brief = decision_brief(tuple(state["options"]), reports)
    return f"{state['news']}\n{brief}" if state["news"] else brief


def _make_request(state: FullState, proposal: Proposal, interrupt_id: str) -> dict[str, Any]:
    reports = {
        role: None if report is None else ReportLine(**report.model_dump())
        for role, report in _reports(state).items()
    }
    request = ReviewRequest(
        thread=proposal.thread,
        interrupt_id=interrupt_id,
        digest=proposal.digest,
        proposal=proposal,
        reports=reports,
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
            "news": f"The reviewer rejects {proposal.option}. {settled['feedback']}".strip(),
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


def _key(context: FullContext, node: str, place: Place, digest: str) -> EffectKey:
    return EffectKey(thread=context.thread, node=node, superstep=place.superstep, input_digest=digest)


def _log_once(context: FullContext, key: EffectKey, kind: Any, body: dict[str, Any]) -> None:
    key = key._replace(node=f"{key.node}/{kind}", input_digest=digest_json([key.input_digest, body]))

    def act() -> dict[str, Any]:
        context.log.append(context.thread, kind, body)
        return body

    context.ledger.perform(key, act)

"""Nodes after the commit: the plan is carried out, watched, planned anew or closed.

What writes to the store does so through the effects ledger: a node that runs again does nothing twice.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from langgraph.runtime import Runtime

from simulator.governance.context import FullContext, log_once, make_effect_key, read_proposal
from simulator.governance.gate.approvals import Proposal, refuse
from simulator.governance.precedents import Precedent, list_features
from simulator.governance.state import Attempt, FullState
from simulator.graph.nodes import Node
from simulator.graph.state import Update


def make_executor(role: str) -> Node[FullState]:
    """Make the node in which one seat carries out its part of the committed proposal.

    Raises NotApprovedError where nothing was committed: the way to it did not lead through the gate.
    """

    async def execute(state: FullState, *, runtime: Runtime[Any]) -> Update:
        context: FullContext = runtime.context
        proposal = read_proposal(state, context)
        digest = proposal.digest
        context.gate.require_commit(proposal)
        part = next((part for part in proposal.parts if part.role == role), None)
        if part is None:
            return {}
        key = make_effect_key(context, f"execute_{role}", digest)
        context.ledger.perform(key, partial(context.gate.deliver, proposal, part))
        return {"delivered": {role: digest}}

    return execute


async def outcome(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """Observe what the committed plan brought; only what can be observed comes back."""
    context = runtime.context
    proposal = read_proposal(state, context)
    context.gate.require_commit(proposal)
    observation = context.outcomes.observe(proposal.option, proposal.parts)
    key = make_effect_key(context, "outcome", proposal.digest)
    log_once(context, key, "observed", {"digest": proposal.digest, **observation})
    return {"observation": observation}


async def monitor(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """Hold every KPI against its floor; a part without a KPI is an alert."""
    proposal = read_proposal(state, runtime.context)
    observation = state["observation"]
    if observation is None:
        raise ValueError("nothing was observed")
    kpis = observation["kpis"]
    alerts = list_alerts(proposal, kpis)
    attempt = Attempt(
        attempt=state["attempt"],
        option=proposal.option,
        kpis=kpis,
        shock=observation["shock"],
        alerts=alerts,
    )
    return {"alerts": alerts, "history": [attempt]}


async def replan(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """Open the case again: the option that failed is ruled out, and the next brief says why."""
    context = runtime.context
    proposal = read_proposal(state, context)
    last = state["history"][-1]
    figures = " ".join(f"{role} {last['kpis'].get(role, 0)}" for role in last["alerts"])
    why = f"execution broke it ({figures} percent)"
    body = {"digest": proposal.digest, "option": proposal.option, "alerts": last["alerts"]}
    log_once(context, make_effect_key(context, "replan", proposal.digest), "replanned", body)
    return {
        "attempt": state["attempt"] + 1,
        "round": 0,
        "votes": {},
        "edited": None,
        "ruling": None,
        "committed": "",
        "observation": None,
        "ruled_out": {**state["ruled_out"], proposal.option: why},
        "redraft_reason": f"Execution of {proposal.option} failed: {figures}.",
    }


async def close(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """End the case: its status comes from the gate, not from the state; it becomes a precedent."""
    context = runtime.context
    proposal = read_proposal(state, context)
    unsound = context.log.find_unsound(context.thread)
    if unsound is not None:
        refuse("tampered", f"entry {unsound} of the decision log was changed")
    status = find_status(context, proposal)
    precedent = Precedent(
        case=state["case"], option=proposal.option, status=status, alerts=list(state["alerts"])
    )

    def act() -> str:
        context.gate.close(proposal, status)
        context.precedents.add(context.thread, list_features(state["briefs"]), precedent)
        return status

    context.ledger.perform(make_effect_key(context, "close", proposal.digest), act)
    return {"status": context.gate.read_status(context.thread)}


def list_alerts(proposal: Proposal, kpis: Mapping[str, int]) -> list[str]:
    """List the seats whose KPI is under its floor or was not observed."""
    return [part.role for part in proposal.parts if kpis.get(part.role, -1) < part.kpi_floor]


def find_status(context: FullContext, proposal: Proposal) -> str:
    """Return completed, completed_with_alerts, handed_over (committed, but no part to do) or not_approved.

    Gate and log are asked: what the state says of commits, deliveries and alerts is not believed.
    """
    if not context.gate.is_committed(proposal):
        return "not_approved"
    if not proposal.parts:
        return "handed_over"
    if set(context.gate.list_delivered(proposal)) != {part.role for part in proposal.parts}:
        return "not_approved"
    observed = [
        entry.body["kpis"]
        for entry in context.log.find(context.thread, "observed")
        if entry.body["digest"] == proposal.digest
    ]
    return "completed_with_alerts" if list_alerts(proposal, (observed or [{}])[-1]) else "completed"

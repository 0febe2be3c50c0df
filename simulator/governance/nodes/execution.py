"""Nodes after the commit: the plan is carried out, watched, planned anew or closed.

What writes to the store does so through the effects ledger: a node that runs again does nothing twice.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from langgraph.runtime import Runtime

from simulator.governance.context import FullContext, log_once, make_effect_key, read_proposal
from simulator.governance.course import read_plan
from simulator.governance.gate.approvals import Proposal, refuse
from simulator.governance.outcomes import Observation
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
    plan, digest = read_plan(proposal), proposal.digest
    try:
        observation = context.outcomes.observe(context.course.list_before(digest), plan)
    except KeyError as error:
        refuse("tampered", f"the committed plan cannot be carried out: {error.args[0]}")
    key = make_effect_key(context, "outcome", digest)
    bought = {seat: list(choice) for seat, choice in plan.funded.items()}
    money = {"costs": dict(plan.costs), "worths": dict(plan.worths)}
    body = {"digest": digest, "option": plan.option, "funded": bought, **money, **observation}
    log_once(context, key, "observed", body)
    return {"observation": observation}


async def monitor(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """Hold every KPI against its floor, every loss against its bound; what was not observed is an alert."""
    proposal = read_proposal(state, runtime.context)
    observation = find_observation(runtime.context, proposal)
    alerts = list_alerts(proposal, observation)
    attempt = Attempt(
        attempt=state["attempt"],
        option=proposal.option,
        funded={part.role: list(part.choice) for part in proposal.parts if part.choice},
        observation=observation,
        alerts=alerts,
    )
    return {"alerts": alerts, "history": [attempt]}


async def replan(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """Open the case again: with what is left of the money, and new briefs for seats whose facts changed."""
    context = runtime.context
    proposal = read_proposal(state, context)
    digest, observation = proposal.digest, find_observation(context, proposal)
    alerts = list_alerts(proposal, observation)
    body = {
        "digest": digest,
        "option": proposal.option,
        "alerts": alerts,
        "changed": observation["changed"],
        "left": observation["left"],
    }
    log_once(context, make_effect_key(context, "replan", digest), "replanned", body)
    case, written = context.course.continue_with(digest, read_plan(proposal))
    figures = "; ".join(
        f"{role} {observation['kpis'].get(role, 0)} percent of its limit, "
        f"{observation['lost'].get(role, 0)} k$ lost"
        for role in alerts
    )
    changed = [role for role in state["briefs"] if role in observation["changed"]]
    briefs = {role: _write_news(observation, role, written[role]) for role in changed}
    return {
        "attempt": state["attempt"] + 1,
        "round": 0,
        "question": None,
        "answered": [],
        "votes": {},
        "edited": None,
        "ruling": None,
        "committed": "",
        "observation": None,
        "changed": changed,
        "briefs": {**state["briefs"], **briefs},
        "options": list(case.options),
        "redraft_reason": f"Execution of {proposal.option} did not hold: {figures}. Plan again.",
    }


def _write_news(observation: Observation, role: str, brief: str) -> str:
    """Write what a seat reports from again: what was measured, then the case as it stands."""
    actuals = [one for one in observation["actuals"] if one["seat"] == role and one["lost"]]
    lines = [
        *observation["shocks"],
        *(f"{one['upgrade']} brought {one['actual']}, not {one['stated']}." for one in actuals),
        f"Measured in your field: {observation['figures'].get(role, 'nothing')}. Report again.",
    ]
    return "\n".join([*lines, brief])


async def close(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """End the case: its status comes from the gate, not from the state; it becomes a precedent."""
    context = runtime.context
    proposal = read_proposal(state, context)
    context.log.verify(context.thread)
    status = find_status(context, proposal)
    seen = [entry.body for entry in context.log.find(context.thread, "observed")]
    precedent = Precedent(
        case=state["case"],
        company=context.words.context,
        option=proposal.option,
        status=status,
        alerts=list(state["alerts"]),
        worth=seen[-1]["worth"] if seen else 0,
        promised=seen[-1]["promised"] if seen else 0,
        actuals=[actual for body in seen for actual in body["actuals"]],
    )

    def act() -> str:
        context.gate.close(proposal, status)
        context.precedents.add(context.thread, list_features(context.course.write_first_briefs()), precedent)
        return status

    context.ledger.perform(make_effect_key(context, "close", proposal.digest), act)
    return {"status": context.gate.read_status(context.thread)}


def find_observation(context: FullContext, proposal: Proposal) -> Observation:
    """Return what the log says was observed of the proposal; the state is not believed.

    Raises:
        NotApprovedError: "tampered": nothing was observed of it, or the log was changed.
    """
    observed = [
        entry.body
        for entry in context.log.find(context.thread, "observed")
        if entry.body["digest"] == proposal.digest
    ]
    if not observed:
        refuse("tampered", "nothing was observed of the proposal")
    told = {name: value for name, value in observed[-1].items() if name in Observation.__annotations__}
    observation: Observation = Observation(**told)  # type: ignore[typeddict-item]
    return observation


def list_alerts(proposal: Proposal, observation: Mapping[str, Any]) -> list[str]:
    """List the seats whose KPI is under its floor, that lost too much, or of which nothing was observed."""
    kpis, lost = observation.get("kpis", {}), observation.get("lost", {})
    return [
        part.role
        for part in proposal.parts
        if kpis.get(part.role, -1) < part.kpi_floor or lost.get(part.role, 0) > part.most_lost
    ]


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
        entry.body
        for entry in context.log.find(context.thread, "observed")
        if entry.body["digest"] == proposal.digest
    ]
    return "completed_with_alerts" if list_alerts(proposal, (observed or [{}])[-1]) else "completed"

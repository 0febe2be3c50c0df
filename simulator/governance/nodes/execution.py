"""Nodes after the commit: the plan is carried out, watched, planned anew or closed.

What a node does is an entry of the log, written once: a node that runs again does nothing twice.
"""

from collections.abc import Mapping
from typing import Any

from langgraph.runtime import Runtime

from simulator.governance.context import FullContext, read_proposal
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
        gate = runtime.context.gate
        proposal = read_proposal(state, runtime.context)
        part = next((part for part in proposal.parts if part.role == role), None)
        if part is None:
            return {}
        gate.deliver(proposal, part)
        return {"delivered": {role: proposal.digest}}

    return execute


async def outcome(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """Observe what the plan in force brought; only what can be observed comes back."""
    context = runtime.context
    proposal = read_proposal(state, context)
    plan, digest = read_plan(proposal), proposal.digest

    def look() -> dict[str, Any]:
        try:
            observation = context.outcomes.observe(context.course.list_before(digest), plan)
        except KeyError as error:
            refuse("tampered", f"the committed plan cannot be carried out: {error.args[0]}")
        return {
            "option": plan.option,
            "funded": {seat: list(choice) for seat, choice in plan.funded.items()},
            "costs": dict(plan.costs),
            "worths": dict(plan.worths),
            "alerts": list_alerts(proposal, observation),
            **observation,
        }

    return {"observation": _read_observation(context.gate.observe(proposal, look))}


async def monitor(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """Hold every KPI against its floor, every loss against its bound; what was not observed is an alert."""
    proposal = read_proposal(state, runtime.context)
    observed = find_observed(runtime.context, proposal)
    attempt = Attempt(
        attempt=state["attempt"],
        option=proposal.option,
        funded={part.role: list(part.choice) for part in proposal.parts if part.choice},
        observation=_read_observation(observed),
        alerts=observed["alerts"],
    )
    return {"alerts": observed["alerts"], "history": [attempt]}


async def replan(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """Open the case again: with what is left of the money, and new briefs for seats whose facts changed."""
    context = runtime.context
    proposal = read_proposal(state, context)
    observed = find_observed(context, proposal)
    kept = {name: observed[name] for name in ("option", "alerts", "changed", "left")}
    context.gate.replan(proposal, kept)
    case, written = context.course.continue_with(proposal.digest, read_plan(proposal))
    observation, alerts = _read_observation(observed), observed["alerts"]
    figures = "; ".join(
        f"{role} {observation['kpis'].get(role, 0)} percent of its limit, "
        f"{observation['lost'].get(role, 0)} k$ lost"
        for role in alerts
    )
    changed = [role for role in state["briefs"] if role in observation["changed"]]
    briefs = {role: _write_news(observation, role, written[role]) for role in changed}
    return {
        "attempt": context.gate.stand(context.thread).attempt,
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
    status = context.gate.close(proposal)
    seen = [entry.body for entry in context.gate.stand(context.thread).find("observed")]
    precedent = Precedent(
        case=proposal.case,
        company=context.words.context,
        option=proposal.option,
        status=status,
        alerts=seen[-1]["alerts"] if seen else [],
        worth=seen[-1]["worth"] if seen else 0,
        promised=seen[-1]["promised"] if seen else 0,
        actuals=[actual for body in seen for actual in body["actuals"]],
    )
    features = list_features(context.course.write_first_briefs())
    context.precedents.add(context.thread, features, precedent)
    return {"status": status}


def find_observed(context: FullContext, proposal: Proposal) -> dict[str, Any]:
    """Return what the log says was observed of the proposal; the state is not believed.

    Raises:
        NotApprovedError: "tampered": nothing was observed of it, or the log was changed.
    """
    observed = context.gate.stand(context.thread).find_observed(proposal.digest)
    if observed is None:
        refuse("tampered", "nothing was observed of the proposal")
    return observed


def _read_observation(observed: Mapping[str, Any]) -> Observation:
    told = {name: value for name, value in observed.items() if name in Observation.__annotations__}
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

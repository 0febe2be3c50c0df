"""Nodes that open a governed case: check it, recall past cases, hand out the briefs; the decision brief."""

from collections.abc import Mapping
from typing import Any

from langgraph.runtime import Runtime

from simulator.game import TeamGame
from simulator.governance.context import FullContext
from simulator.governance.precedents import list_features, write_recollection
from simulator.governance.state import FullState
from simulator.graph import nodes as team_nodes
from simulator.graph.state import Update


async def intake(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """Check the case and recall past ones of the same company, and similar ones.

    Raises:
        UserError: see `simulator.graph.nodes.intake`.
    """
    update = await team_nodes.intake(state, runtime=runtime)
    context = runtime.context
    recalled = context.precedents.recall(
        list_features(context.course.write_first_briefs()), context.horizon, company=context.words.context
    )
    return {**update, "precedents": recalled}


async def dispatch(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """Hand out the briefs: with each what closed cases of the same company showed of the seat's upgrades."""
    company = runtime.context.words.context
    own = [one for one in state["precedents"] if company and one["company"] == company]
    told = {role: write_recollection(own, role) for role in state["briefs"]}
    return {
        "briefs": {
            role: f"{told[role]}\n{brief}" if told[role] else brief for role, brief in state["briefs"].items()
        }
    }


def write_renewed_brief(game: TeamGame, state: FullState, reports: Mapping[str, Any]) -> str:
    """Write the decision brief, after the reason of a new draft where there is one."""
    brief = game.write_decision_brief(reports, state["ruled_out"])
    return f"{state['redraft_reason']}\n{brief}" if state["redraft_reason"] else brief

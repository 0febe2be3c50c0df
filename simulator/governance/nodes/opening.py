"""Nodes that open a governed case: check it, recall past cases, assign duties; and the decision brief."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from langgraph.runtime import Runtime

from simulator.governance.context import FullContext
from simulator.governance.precedents import Precedent, list_features
from simulator.governance.state import Duty, FullState
from simulator.graph import nodes as team_nodes
from simulator.graph.game import TeamGame
from simulator.graph.state import Update


async def intake(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """Check the case and recall similar past ones.

    Raises:
        UserError: see `simulator.graph.nodes.intake`.
    """
    update = await team_nodes.intake(state, runtime=runtime)
    recalled = runtime.context.precedents.recall(list_features(state["briefs"]), runtime.context.horizon)
    return {**update, "precedents": recalled}


async def dispatch(state: FullState, *, runtime: Runtime[FullContext]) -> Update:
    """Assign the duties: every seat of the case reports, one seat answers for the result."""
    return {"duty": assign_duty(list(state["briefs"]), state["precedents"])}


def assign_duty(seats: list[str], precedents: list[Precedent]) -> Duty:
    """Assign RACI. Accountable is the seat whose KPI fell most often in recalled cases, else the first."""
    fallen = Counter(role for precedent in precedents for role in precedent["alerts"] if role in seats)
    accountable = max(seats, key=lambda role: fallen[role])
    return Duty(
        responsible=seats,
        accountable=accountable,
        consulted=[role for role in seats if role != accountable],
        informed=["reviewer"],
    )


def write_renewed_brief(game: TeamGame, state: FullState, reports: Mapping[str, Any]) -> str:
    """Write the decision brief, after the reason of a new draft where there is one."""
    brief = game.write_decision_brief(reports, state["ruled_out"])
    return f"{state['redraft_reason']}\n{brief}" if state["redraft_reason"] else brief

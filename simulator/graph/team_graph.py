"""The graph of the assess protocol: intake -> specialists -> reconcile (-> answer -> reconcile) -> vote."""

from collections.abc import AsyncIterator
from functools import cache
from typing import Any

from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langsmith.run_helpers import tracing_context

from roles.team import SPECIALISTS
from simulator.graph.nodes import (
    after_reconcile,
    answer,
    choose_reporters,
    intake,
    make_after_vote,
    make_reconcile_node,
    make_report_node,
    make_vote_node,
)
from simulator.graph.state import EpisodeContext, ReconcilerView, TeamState

TeamGraph = CompiledStateGraph[TeamState, EpisodeContext, TeamState, TeamState]


@cache
def team_graph(seats: tuple[str, ...]) -> TeamGraph:
    """Return the compiled graph of these seats; made once per process and shared by all episodes."""
    graph = StateGraph(TeamState, context_schema=EpisodeContext)
    graph.add_node("intake", intake)
    for role in seats:
        graph.add_node(role, make_report_node(role))
        graph.add_edge(role, "reconcile")
    graph.add_node("reconcile", make_reconcile_node(seats), input_schema=ReconcilerView)
    graph.add_node("vote", make_vote_node(seats))
    graph.add_edge(START, "intake")
    graph.add_conditional_edges("intake", choose_reporters, [*seats, "reconcile"])
    graph.add_node("answer", answer)
    graph.add_conditional_edges("reconcile", after_reconcile, ["answer", "vote"])
    graph.add_edge("answer", "reconcile")
    graph.add_conditional_edges("vote", make_after_vote(END), ["reconcile", END])
    return graph.compile()


async def stream_states(case: TeamState, context: EpisodeContext) -> AsyncIterator[TeamState]:
    """Play one episode, yielding the whole state at the start and after every step.

    Without rounds of votes it stops before vote. Tracing stays off whatever the environment says: states hold
    company facts, and nothing here may leave the process unasked.
    """
    stop_before = ["vote"] if case["rounds"] == 0 else None
    graph = team_graph(tuple(case["briefs"]))
    limit = 4 + 2 * case["rounds"] + 2 * case["questions"]
    with tracing_context(enabled=False):
        async for state in graph.astream(
            case,
            {"recursion_limit": limit},
            context=context,
            stream_mode="values",
            interrupt_before=stop_before,
        ):
            yield state  # type: ignore[misc]


async def play_graph(case: TeamState, context: EpisodeContext) -> TeamState:
    """Play one episode and return the last state; whatever a node raises comes out as it is."""
    last = case
    async for state in stream_states(case, context):
        last = state
    return last


def open_team() -> TeamGraph:
    """Return the graph of the five roles, for LangGraph's own tools: `langgraph.json` names this function."""
    return team_graph(SPECIALISTS)


def list_edges(graph: CompiledStateGraph[Any, Any, Any, Any]) -> list[tuple[str, str, bool]]:
    """List the edges as (from, to, whether a condition chooses it), `__start__` and `__end__` included."""
    return [(edge.source, edge.target, edge.conditional) for edge in graph.get_graph().edges]

"""The governed graph: from the case over the human gate to execution and re-plan.

intake -> dispatch -> specialists -> reconcile (-> answer) -> (vote) -> propose -> review -> commit ->
executors -> monitor -> close, or re-plan: seats whose facts changed report again, then reconcile.
Routes after the proposal are by the log. LangGraph is the road, not the guard: see `gate`.
"""

from functools import cache

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime

from roles.team import SPECIALISTS
from simulator.governance.gate import MAX_REPLANS
from simulator.governance.nodes import (
    FullContext,
    FullState,
    close,
    commit,
    dispatch,
    intake,
    judge,
    make_executor,
    monitor,
    propose,
    replan,
    review,
    write_renewed_brief,
)
from simulator.graph.nodes import (
    make_after_vote,
    make_answer_node,
    make_reconcile_node,
    make_report_node,
    make_vote_node,
)

MAX_REVISIONS, MAX_REFUSALS = 5, 5

FullGraph = CompiledStateGraph[FullState, FullContext, FullState, FullState]


async def after_dispatch(state: FullState) -> list[str]:
    """Route to every seat at once, also where the thread is opened anew and holds reports."""
    return list(state["briefs"])


async def after_reconcile(state: FullState, *, runtime: Runtime[FullContext]) -> str:
    """Route a question to its answer, a draft by its type.

    A routine draft, or one that goes to the reviewer, is not voted on.
    """
    if state["question"] is not None:
        return "answer"
    context = runtime.context
    judged = judge(state, context.course.case.public, context.stand(state))
    is_open = judged.decision_type in ("contested", "critical")
    return "vote" if is_open and state["rounds"] > 0 else "propose"


async def after_review(state: FullState, *, runtime: Runtime[FullContext]) -> str:
    """Route by the ruling, to the end after too many; an approval leads to the commit, which verifies it."""
    standing = runtime.context.stand(state)
    ruling = standing.latest.ruling
    if ruling == "waiting":
        return "review"
    if ruling == "approve":
        return "commit"
    if standing.revision > MAX_REVISIONS or standing.num_refused >= MAX_REFUSALS:
        return "close"
    return "reconcile" if ruling == "reject" else "propose"


async def after_commit(state: FullState, *, runtime: Runtime[FullContext]) -> list[str]:
    """Route to all executors at once; to the end where there is nothing to carry out."""
    display = runtime.context.stand(state).latest
    if not display.is_committed:
        return [await after_review(state, runtime=runtime)]
    return [f"execute_{part.role}" for part in display.proposal.parts] or ["close"]


async def after_monitor(state: FullState, *, runtime: Runtime[FullContext]) -> str:
    """Re-plan while an alert stands and a re-plan is left."""
    display = runtime.context.stand(state).latest
    has_alert = bool((display.observed or {}).get("alerts"))
    return "replan" if has_alert and display.proposal.attempt < MAX_REPLANS else "close"


async def after_replan(state: FullState, *, runtime: Runtime[FullContext]) -> list[str]:
    """Route to the seats whose facts changed, at once; to reconcile where there is none."""
    observed = runtime.context.stand(state).latest.observed or {}
    return [role for role in state["briefs"] if role in observed.get("changed", ())] or ["reconcile"]


@cache
def _compile(seats: tuple[str, ...]) -> FullGraph:
    graph = StateGraph(FullState, context_schema=FullContext)
    executors = [f"execute_{role}" for role in seats]
    for name, node in (
        ("intake", intake),
        ("dispatch", dispatch),
        ("reconcile", make_reconcile_node(seats, write_renewed_brief)),
        ("answer", make_answer_node()),
        ("vote", make_vote_node(seats)),
        ("propose", propose),
        ("review", review),
        ("commit", commit),
        ("monitor", monitor),
        ("replan", replan),
        ("close", close),
        *((role, make_report_node(role)) for role in seats),
        *((f"execute_{role}", make_executor(role)) for role in seats),
    ):
        graph.add_node(name, node, input_schema=FullState)  # a shared node asks for the team's part only
    graph.add_edge(START, "intake")
    graph.add_edge("intake", "dispatch")
    graph.add_conditional_edges("dispatch", after_dispatch, list(seats))
    for role in seats:
        graph.add_edge(role, "reconcile")
    graph.add_conditional_edges("reconcile", after_reconcile, ["answer", "vote", "propose"])
    graph.add_edge("answer", "reconcile")
    graph.add_conditional_edges("vote", make_after_vote("propose"), ["reconcile", "propose"])
    graph.add_edge("propose", "review")
    graph.add_conditional_edges("review", after_review, ["review", "commit", "propose", "reconcile", "close"])
    graph.add_conditional_edges("commit", after_commit, [*executors, "propose", "close"])
    graph.add_edge(executors, "monitor")
    graph.add_conditional_edges("monitor", after_monitor, ["replan", "close"])
    graph.add_conditional_edges("replan", after_replan, [*seats, "reconcile"])
    graph.add_edge("close", END)
    return graph.compile()


def full_graph(seats: tuple[str, ...], checkpointer: BaseCheckpointSaver[str] | None) -> FullGraph:
    """Return the compiled graph of these seats on a checkpointer; None: it can be drawn, not played."""
    return _compile(seats).copy({"checkpointer": checkpointer})


def open_full() -> FullGraph:
    """Return the governed graph of the five roles, for LangGraph's own tools: `langgraph.json` names it."""
    return full_graph(SPECIALISTS, None)

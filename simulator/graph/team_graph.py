"""The team's graph, drawn in one place: intake -> specialists side by side -> reconcile -> vote.

LangGraph is imported only here. State holds JSON values only: briefs, texts, what they parse to, the round.
Agents and parsers stand beside it in `EpisodeContext`; truth and facts are in neither.
Nodes and routes are all coroutines: LangGraph runs plain functions in a thread pool.
"""

import operator
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Protocol, TypeVar

from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from langsmith.run_helpers import tracing_context
from typing_extensions import TypedDict  # typing's own has no JSON schema before Python 3.12

from roles.base import Answer
from roles.team import RECONCILER, SPECIALISTS, Decision, SpecialistReport
from scenarios.team import decision_brief, parse_vote, vote_brief
from simulator.graph.concurrency import run_all
from simulator.observer import Observer


class Utterance(TypedDict):
    """What a role wrote, and what it parses to (None: malformed)."""

    text: str
    parsed: Any


def make_utterance(text: str, parsed: Answer | None) -> Utterance:
    """The text with what it parses to, as JSON values."""
    return Utterance(text=text, parsed=parsed and parsed.model_dump())


class ReconcilerView(TypedDict):
    """All that the reconcile node is given: no brief of any specialist is in it."""

    options: list[str]
    reports: Annotated[dict[str, Utterance], operator.or_]  # by seat
    votes: dict[str, Utterance]  # on the last decision; parsed is "accept", "object" or None
    round: int  # decisions drafted so far


class TeamState(ReconcilerView):
    """Everything that the graph carries: plain JSON values.

    Example: {"options": ["A", "B"], "briefs": {"cto": "Bank case. ..."}, "rounds": 1, "round": 0,
              "reports": {}, "decision": None, "votes": {}}
    """

    briefs: dict[str, str]  # seat -> what its specialist reads; the keys are the seats, in order
    rounds: (
        int  # rounds of votes at most: 0 one draft and no vote, 1 one draft and its vote, 2 one more draft
    )
    decision: Utterance | None


class Speaker(Protocol):
    """An agent as the graph needs it."""

    async def start(self, brief: str) -> str: ...

    async def follow_up(self, text: str) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeContext:
    """What nodes use and state must not hold."""

    agents: Mapping[str, Speaker]  # by role: every seat and the reconciler
    read_report: Callable[[str], SpecialistReport | None]  # strict; None for a malformed report
    read_decision: Callable[[str], Decision | None]
    observer: Observer | None = None  # told of reports, decisions and votes


Update = dict[str, Any]
State_contra = TypeVar("State_contra", contravariant=True)


class Node(Protocol[State_contra]):
    """A node of the graph: state and what stands beside it in, update of the state out."""

    async def __call__(self, state: State_contra, *, runtime: Runtime[EpisodeContext]) -> Update: ...


TeamGraph = CompiledStateGraph[TeamState, EpisodeContext, TeamState, TeamState]


def objection_brief(objectors: list[str]) -> str:
    """What ReconcileGPT reads when its draft comes back, e.g. "Objections cost risk. Decide again."."""
    return f"Objections {' '.join(objectors)}. Decide again."


async def intake(state: TeamState, runtime: Runtime[EpisodeContext]) -> Update:
    """Open the case: every seat and the reconciler must have an agent."""
    missing = {*state["briefs"], RECONCILER} - set(runtime.context.agents)
    if missing:
        raise ValueError(f"no agent for {', '.join(sorted(missing))}")
    return {"round": 0}


async def dispatch(state: TeamState) -> list[str]:
    """Everybody who has not reported yet, at once; straight to reconcile where all reports are given."""
    return [role for role in state["briefs"] if role not in state["reports"]] or ["reconcile"]


def make_report_node(role: str) -> Node[TeamState]:
    """The node in which one specialist reads its own brief and reports."""

    async def report(state: TeamState, *, runtime: Runtime[EpisodeContext]) -> Update:
        text = await runtime.context.agents[role].start(state["briefs"][role])
        said = make_utterance(text, runtime.context.read_report(text))
        if runtime.context.observer is not None:
            runtime.context.observer.on_report(role, text, said["parsed"])
        return {"reports": {role: said}}

    return report


def make_reconcile_node(seats: tuple[str, ...]) -> Node[ReconcilerView]:
    """The node in which ReconcileGPT drafts from the reports, or drafts again from the objections."""

    async def reconcile(state: ReconcilerView, *, runtime: Runtime[EpisodeContext]) -> Update:
        reconciler = runtime.context.agents[RECONCILER]
        if state["round"] == 0:
            reports = {role: _parsed_report(state["reports"][role]) for role in seats}
            text = await reconciler.start(decision_brief(tuple(state["options"]), reports))
        else:
            text = await reconciler.follow_up(objection_brief(_objectors(state)))
        decision = make_utterance(text, runtime.context.read_decision(text))
        if runtime.context.observer is not None:
            runtime.context.observer.on_decision(text, decision["parsed"], state["round"] + 1)
        return {"decision": decision, "round": state["round"] + 1}

    return reconcile


def make_vote_node(seats: tuple[str, ...]) -> Node[TeamState]:
    """The node in which all specialists vote at once, each in its own transcript."""

    async def vote(state: TeamState, *, runtime: Runtime[EpisodeContext]) -> Update:
        parsed = state["decision"] and state["decision"]["parsed"]
        question = vote_brief(parsed and Decision.model_validate(parsed))
        texts = await run_all(runtime.context.agents[role].follow_up(question) for role in seats)
        votes = [Utterance(text=text, parsed=parse_vote(text)) for text in texts]
        if runtime.context.observer is not None:
            for role, said in zip(seats, votes, strict=True):
                runtime.context.observer.on_vote(role, said["text"], said["parsed"])
        return {"votes": dict(zip(seats, votes, strict=True))}

    return vote


async def after_vote(state: TeamState) -> str:
    """Back to reconcile while somebody objects and a round is left, else done: the last draft stands."""
    return "reconcile" if _objectors(state) and state["round"] < state["rounds"] else END


@cache
def team_graph(seats: tuple[str, ...]) -> TeamGraph:
    """The compiled graph of these seats; made once per process and shared by all episodes."""
    graph = StateGraph(TeamState, context_schema=EpisodeContext)
    graph.add_node("intake", intake)
    for role in seats:
        graph.add_node(role, make_report_node(role))
        graph.add_edge(role, "reconcile")
    graph.add_node("reconcile", make_reconcile_node(seats), input_schema=ReconcilerView)
    graph.add_node("vote", make_vote_node(seats))
    graph.add_edge(START, "intake")
    graph.add_conditional_edges("intake", dispatch, [*seats, "reconcile"])
    graph.add_edge("reconcile", "vote")
    graph.add_conditional_edges("vote", after_vote, ["reconcile", END])
    return graph.compile()


async def stream_states(
    case: TeamState, context: EpisodeContext, *, reports_only: bool = False
) -> AsyncIterator[TeamState]:
    """Play one episode, yielding the whole state at the start and after every step.

    `reports_only` stops before reconcile, no rounds of votes before vote. Tracing stays off whatever the
    environment says: states hold company facts, and nothing here may leave the process unasked.
    """
    stop_before = ["reconcile"] if reports_only else ["vote"] if case["rounds"] == 0 else None
    graph = team_graph(tuple(case["briefs"]))
    limit = 4 + 2 * case["rounds"]
    with tracing_context(enabled=False):
        async for state in graph.astream(
            case,
            {"recursion_limit": limit},
            context=context,
            stream_mode="values",
            interrupt_before=stop_before,
        ):
            yield state  # type: ignore[misc]


async def play_graph(case: TeamState, context: EpisodeContext, *, reports_only: bool = False) -> TeamState:
    """Play one episode and return the last state; whatever a node raises comes out as it is."""
    last = case
    async for state in stream_states(case, context, reports_only=reports_only):
        last = state
    return last


def open_team() -> TeamGraph:
    """The house's graph, for LangGraph's own tools: `langgraph.json` names this function."""
    return team_graph(SPECIALISTS)


def graph_mermaid(seats: tuple[str, ...] = SPECIALISTS) -> str:
    """The graph as LangGraph itself draws it, in Mermaid."""
    return team_graph(seats).get_graph().draw_mermaid()


def graph_edges(seats: tuple[str, ...] = SPECIALISTS) -> list[tuple[str, str, bool]]:
    """The graph as (from, to, whether a condition chooses it), `__start__` and `__end__` included."""
    return [(edge.source, edge.target, edge.conditional) for edge in team_graph(seats).get_graph().edges]


def _parsed_report(said: Utterance) -> SpecialistReport | None:
    return said["parsed"] and SpecialistReport.model_validate(said["parsed"])


def _objectors(state: ReconcilerView) -> list[str]:
    return [role for role, vote in state["votes"].items() if vote["parsed"] == "object"]

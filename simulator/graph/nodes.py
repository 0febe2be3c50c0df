"""The nodes in which a team reports, decides and votes; both team graphs are built from these.

All are coroutines: LangGraph runs plain functions in a thread pool.
"""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol, TypeVar, assert_never

from langgraph.runtime import Runtime

from roles.errors import UserError
from roles.team import NO_OPTION, RECONCILER
from simulator.graph.concurrency import run_all
from simulator.graph.state import (
    Answered,
    EpisodeContext,
    ReconcilerView,
    Step,
    TeamState,
    Update,
    Utterance,
    list_objectors,
    list_parsed,
)

MAX_BRIEF_CHARS = 20_000

State_contra = TypeVar("State_contra", contravariant=True)


class Node(Protocol[State_contra]):
    """A node of a graph: its part of the state and the context in, update of the state out."""

    async def __call__(self, state: State_contra, *, runtime: Runtime[Any]) -> Update: ...


WriteBrief = Callable[[Any, Any, Mapping[str, Any]], str]  # context, state, parsed reports by seat


async def intake(state: TeamState, *, runtime: Runtime[Any]) -> Update:
    """Check the case.

    Raises:
        UserError: no option or one twice, no seat, or a brief that is empty or longer than 20,000 characters.
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
    return {"round": 0}


def make_report_node(role: str) -> Node[TeamState]:
    """Make the node in which one specialist reads its own brief and reports."""

    async def report(state: TeamState, *, runtime: Runtime[Any]) -> Update:
        return {"reports": {role: await _ask(runtime.context, "report", role, state["briefs"][role], state)}}

    return report


def write_first_brief(context: EpisodeContext, state: ReconcilerView, reports: Mapping[str, Any]) -> str:
    """Write the decision brief from the reports."""
    return context.game.write_decision_brief(reports)


def make_reconcile_node(
    seats: tuple[str, ...], write_brief: WriteBrief = write_first_brief
) -> Node[ReconcilerView]:
    """Make the node in which ReconcileGPT drafts from the reports, or drafts again from the objections.

    While questions are left it may ask a seat instead; with the reply it reads the reports again.
    """

    async def reconcile(state: ReconcilerView, *, runtime: Runtime[Any]) -> Update:
        context: EpisodeContext = runtime.context
        if state["round"] == 0 or state["question"] is not None:
            parsed = list_parsed(state["reports"])
            message = write_brief(context, state, {role: parsed[role] for role in seats})
        else:
            message = context.game.write_objection_brief(list_parsed(state["votes"]))
        said = await _ask(context, "reconcile", RECONCILER, message, state)
        if said["parsed"] is not None and "ask" in said["parsed"]:
            return {"question": said}
        return {"decision": said, "question": None, "round": state["round"] + 1, "votes": {}}

    return reconcile


async def answer(state: TeamState, *, runtime: Runtime[Any]) -> Update:
    """Let the seat that ReconcileGPT asks reply, in its own transcript."""
    context: EpisodeContext = runtime.context
    question = state["question"]
    assert question is not None
    ask = question["parsed"]["ask"]
    seat = ask["seat"]
    said = await _ask(context, "reply", seat, context.game.write_ask(seat, ask), state)
    report = state["reports"][seat]
    added = Utterance(text=report["text"], parsed=context.game.add_offer(report["parsed"], said["parsed"]))
    return {"reports": {seat: added}, "answered": [*state["answered"], Answered(ask=question, reply=said)]}


def make_vote_node(seats: tuple[str, ...]) -> Node[TeamState]:
    """Make the node in which all specialists vote on the draft at once, each in its own transcript."""

    async def vote(state: TeamState, *, runtime: Runtime[Any]) -> Update:
        context: EpisodeContext = runtime.context
        draft = state["decision"] and state["decision"]["parsed"]
        reports = list_parsed(state["reports"])
        answers = await run_all(
            _ask(context, "vote", role, context.game.write_vote_brief(draft, role, reports), state)
            for role in seats
        )
        return {"votes": dict(zip(seats, answers, strict=True))}

    return vote


async def choose_reporters(state: TeamState) -> list[str]:
    """Route to every seat that has not reported yet, at once; to reconcile where all have."""
    return [role for role in state["briefs"] if role not in state["reports"]] or ["reconcile"]


async def after_reconcile(state: TeamState) -> str:
    """Route a question to its answer, a draft to the vote."""
    return "vote" if state["question"] is None else "answer"


def make_after_vote(otherwise: str) -> Callable[[TeamState], Coroutine[Any, Any, str]]:
    """Make the route after votes: to reconcile while a seat objects and a round is left, else `otherwise`."""

    async def after_vote(state: TeamState) -> str:
        return "reconcile" if list_objectors(state) and state["round"] < state["rounds"] else otherwise

    return after_vote


async def _ask(context: EpisodeContext, step: Step, role: str, message: str, state: Any) -> Utterance:
    """Ask a role, read its answer, and tell the observer of an answer that is new."""
    reply = await context.agents.ask(step, role, message, state)
    text, game, observer = reply.text, context.game, context.observer if reply.is_new else None
    parsed: Any
    match step:
        case "report":
            parsed = game.read_report(role, text)
            if observer is not None:
                observer.on_report(role, text, parsed)
        case "reconcile":
            ask = game.read_ask(text) if len(state["answered"]) < state["questions"] else None
            parsed = {"ask": ask}
            if ask is None:
                parsed = game.read_decision(list_parsed(state["reports"]), text)
            if observer is not None and ask is not None:
                observer.on_ask(text, ask)
            elif observer is not None:
                observer.on_decision(text, parsed, reply.number - len(state["answered"]))
        case "reply":
            ask = state["question"]["parsed"]["ask"]
            parsed = game.read_reply(role, ask, state["reports"][role]["parsed"], text)
            if observer is not None:
                observer.on_reply(role, text, parsed)
        case "vote":
            parsed = game.read_vote(text)
            if observer is not None:
                observer.on_vote(role, text, parsed)
        case _:
            assert_never(step)
    return Utterance(text=text, parsed=parsed)

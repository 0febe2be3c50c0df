"""Plays governed episodes: through the human gate, many at once; a stopped one can be continued anywhere.

A thread is one case in one store. Playing a thread again goes on where it stopped: after a kill, while it
waited for a reviewer, or not at all where it is closed. A fault stays with its episode.
"""

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, closing, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.types import Command
from langsmith.run_helpers import tracing_context

from roles.errors import InfrastructureError, UserError
from scenarios.team.playable import PlayableCase
from simulator.governance.case_words import describe_case
from simulator.governance.context import FullContext
from simulator.governance.course import Course
from simulator.governance.durable_agents import DurableAgents
from simulator.governance.gate.approvals import Clock, NotApprovedError, draw_nonce
from simulator.governance.gate.eligibility import Reviewers
from simulator.governance.gate.gate import Gate
from simulator.governance.gate.request_form import ReviewRequest
from simulator.governance.gate.requests import Requests
from simulator.governance.gate.review_desk import LIFETIME_S, ReviewDesk
from simulator.governance.gate.reviewers import Reviewer
from simulator.governance.governed_graph import FullGraph, full_graph
from simulator.governance.outcomes import Outcomes
from simulator.governance.precedents import PrecedentStore
from simulator.governance.state import FullState, open_full_case
from simulator.governance.store.checkpoint_saver import StoreSaver
from simulator.governance.store.database import Store, open_store
from simulator.governance.store.decision_log import DecisionLog
from simulator.governance.store.effects import EffectsLedger
from simulator.governance.store.opening import marking, naming_damage
from simulator.governance.store.thread_claims import ThreadClaims
from simulator.graph.concurrency import run_pool
from simulator.graph.context import TeamAgents
from simulator.graph.garbage_collection import deferred_garbage_collection
from simulator.graph.seating import Seating
from simulator.observer import Observer

Case = TypeVar("Case", bound=PlayableCase)
MOST_SUPERSTEPS = 1_000  # far over what re-plans, rounds and refusals allow
WAITING, FAILED, VIOLATION = "waiting", "failed", "violation"
_TIMED = ("interrupt_id", "nonce", "signature", "record", "shown")  # what differs between two plays


@dataclass(frozen=True, slots=True, kw_only=True)
class GovernanceServices:
    """A store and the services on it; made by `open_services`.

    Two processes may work on one file: each thread is played by one at a time.
    """

    connection: Store
    checkpointer: BaseCheckpointSaver[Any]
    ledger: EffectsLedger
    log: DecisionLog
    gate: Gate
    desk: ReviewDesk
    precedents: PrecedentStore
    claims: ThreadClaims
    graphs: dict[tuple[str, ...], FullGraph] = field(default_factory=dict)  # compiled, by seats
    is_batched: bool = True  # one commit for what many episodes did at once

    def committing(self) -> AbstractContextManager[None]:
        """Commit many transactions at once meanwhile."""
        return self.connection.grouping() if self.is_batched else nullcontext()

    def graph(self, seats: tuple[str, ...]) -> FullGraph:
        """Return the graph of these seats on the services' checkpointer, compiled once."""
        if seats not in self.graphs:
            self.graphs[seats] = full_graph(seats, self.checkpointer)
        return self.graphs[seats]


@dataclass(frozen=True, slots=True, kw_only=True)
class GovernedEpisode:
    """The result of one thread.

    Example: GovernedEpisode(thread="t1", case_key="team/test/0/7/2", status="completed", state={...},
                             trace=((1, "report/cto", {...}), ...), error=None)
    """

    thread: str
    case_key: str
    status: str  # completed, completed_with_alerts, handed_over, not_approved; waiting, failed, violation
    state: Mapping[str, Any]  # the graph's last state
    trace: tuple[
        tuple[int, str, Any], ...
    ]  # recorded effects, then log entries (superstep -1); no time in it
    error: str | None  # of a failed one: the infrastructure's fault; of a violation: what was refused


@asynccontextmanager
async def open_services(
    path: Path | None,
    *,
    key: bytes,
    clock: Clock = time.time,
    nonce: Callable[[], str] = draw_nonce,
    lifetime_s: int = LIFETIME_S,
    four_eyes: bool = False,
) -> AsyncIterator[GovernanceServices]:
    """Open the services on a SQLite file (None: in memory); `four_eyes`: a plan needs two approvals.

    Raises:
        UserError: the file cannot be used, or the file is an old copy (see `high_water_mark`).
    """
    path = path and path.resolve()  # a link to the store has no mark of its own
    with ExitStack() as stack:
        stack.enter_context(naming_damage(path))
        connection = stack.enter_context(closing(open_store(path)))
        log = stack.enter_context(marking(connection, clock, path, key=key))
        requests = Requests(connection, log=log)
        reviewers = Reviewers(connection, log=log, four_eyes=four_eyes)
        yield GovernanceServices(
            connection=connection,
            checkpointer=StoreSaver(connection),
            ledger=EffectsLedger(connection),
            log=log,
            gate=Gate(connection, key=key, log=log, requests=requests, reviewers=reviewers),
            desk=ReviewDesk(
                connection,
                key=key,
                log=log,
                requests=requests,
                reviewers=reviewers,
                lifetime_s=lifetime_s,
                nonce=nonce,
            ),
            precedents=PrecedentStore(connection),
            claims=ThreadClaims(path),
        )


async def play_governed(
    cases: Sequence[Case],
    services: GovernanceServices,
    seating: Seating,
    reviewer: Reviewer,
    outcomes: Callable[[Case], Outcomes],
    *,
    rounds: int = 2,
    concurrency: int = 8,
) -> list[GovernedEpisode]:
    """Play each case as far as it goes, in a thread named by the seating's stream and the case.

    Raises:
        UserError: a seat without a policy, a case that cannot be played or has a name that cannot be printed,
            or a decision log that was changed.
        ValueError: rounds < 0, concurrency < 1, or one case twice.
    """
    if rounds < 0:
        raise ValueError(f"rounds must be >= 0, got {rounds}")
    threads = [f"{seating.stream}/{case.key}" for case in cases]
    if len(set(threads)) != len(threads):
        raise ValueError("one case stands twice in the call")
    for thread in threads:
        if not thread.isprintable():  # half a character cannot be written
            raise UserError(f"a case has the name {thread!r}; use characters that can be printed")
    seating.check(cases)
    try:
        services.log.head()
    except NotApprovedError as error:
        raise UserError(f"{error}; use the store's own key, or another store") from None
    with deferred_garbage_collection(concurrency), services.committing():
        return await _play_all(cases, threads, services, seating, reviewer, outcomes, rounds, concurrency)


async def _play_all(
    cases: Sequence[Case],
    threads: Sequence[str],
    services: GovernanceServices,
    seating: Seating,
    reviewer: Reviewer,
    outcomes: Callable[[Case], Outcomes],
    rounds: int,
    concurrency: int,
) -> list[GovernedEpisode]:
    newest = services.precedents.horizon()
    horizons = [
        services.gate.open_case(thread, case.key, newest, list(case.seats))
        for thread, case in zip(threads, cases, strict=True)
    ]
    jobs = [
        partial(_contain, case, thread, horizon, services, seating, reviewer, outcomes(case), rounds)
        for case, thread, horizon in zip(cases, threads, horizons, strict=True)
    ]
    return await run_pool(jobs, concurrency=concurrency)


def make_full_context(
    thread: str,
    horizon: int,
    services: GovernanceServices,
    agents: TeamAgents,
    case: PlayableCase,
    course: Course,
    outcomes: Outcomes,
    observer: Observer | None = None,
) -> FullContext:
    """Return the context of one thread's nodes."""
    return FullContext(
        thread=thread,
        agents=agents,
        game=course.game,
        observer=observer,
        gate=services.gate,
        ledger=services.ledger,
        log=services.log,
        precedents=services.precedents,
        horizon=horizon,
        outcomes=outcomes,
        course=course,
        words=describe_case(case),
    )


def make_course(thread: str, seating: Seating, outcomes: Outcomes, services: GovernanceServices) -> Course:
    """Return the course of a thread, played at this seating."""
    return Course(
        thread,
        outcomes,
        seating.make_game,
        lambda case, game: seating.open_case(case, game, rounds=0)["briefs"],
        services.log,
    )


def thread_config(thread: str) -> RunnableConfig:
    """Configure LangGraph for a thread."""
    return {"configurable": {"thread_id": thread}, "recursion_limit": MOST_SUPERSTEPS}


async def _contain(
    case: PlayableCase,
    thread: str,
    horizon: int,
    services: GovernanceServices,
    seating: Seating,
    reviewer: Reviewer,
    outcomes: Outcomes,
    rounds: int,
) -> GovernedEpisode:
    """Play one thread; an engine's failure and a refused commit end it, and no session outlives it."""
    if seating.watch is None:
        return await _play_thread(case, thread, horizon, services, seating, reviewer, outcomes, rounds, None)
    observer = seating.watch(case, thread)
    services.log.listeners[thread] = observer.on_governance
    ended: str | None = None
    try:
        episode = await _play_thread(
            case, thread, horizon, services, seating, reviewer, outcomes, rounds, observer
        )
        ended = episode.error
        return episode
    except BaseException as error:
        ended = str(error) or type(error).__name__
        raise
    finally:
        services.log.listeners.pop(thread, None)
        observer.on_end(ended)


async def _play_thread(
    case: PlayableCase,
    thread: str,
    horizon: int,
    services: GovernanceServices,
    seating: Seating,
    reviewer: Reviewer,
    outcomes: Outcomes,
    rounds: int,
    observer: Observer | None,
) -> GovernedEpisode:
    course = make_course(thread, seating, outcomes, services)
    agents = DurableAgents(seating, case, course.game, thread, services.ledger, observer=observer)
    context = make_full_context(thread, horizon, services, agents, case, course, outcomes, observer)
    start = open_full_case(seating.open_case(case, seating.make_game(case), rounds=rounds))
    try:
        with tracing_context(enabled=False):
            state, status, error = await _drive(start, context, services, reviewer)
        trace = tuple(read_trace(services, thread))
    except NotApprovedError as refusal:  # an effect in the store is not the one that was written
        status, error, trace = VIOLATION, f"{refusal.reason}: {refusal}", ()
    finally:
        agents.end()
    return GovernedEpisode(
        thread=thread,
        case_key=case.key,
        status=status,
        state=state,
        trace=trace,
        error=error,
    )


async def _drive(
    start: FullState, context: FullContext, services: GovernanceServices, reviewer: Reviewer
) -> tuple[Mapping[str, Any], str, str | None]:
    """Play the thread as far as it goes, alone; return (last state, status, error)."""
    graph = services.graph(tuple(start["briefs"]))
    config = thread_config(context.thread)
    state: Mapping[str, Any] = start
    try:
        with services.claims.hold(context.thread):
            snapshot = await graph.aget_state(config)
            state = snapshot.values or start
            step: Any = None if snapshot.values else start
            if snapshot.values and not snapshot.tasks:  # `next` leaves out a task that ran before the kill
                return state, services.gate.read_status(context.thread), None
            while True:
                state = await graph.ainvoke(step, config, context=context, durability="sync")
                interrupts = state.get("__interrupt__", ())
                if not interrupts:
                    return state, services.gate.read_status(context.thread), None
                request = ReviewRequest.model_validate(interrupts[0].value)
                answer = await services.desk.ask(request, reviewer)
                if answer is None:
                    return _without_interrupt(state), WAITING, None
                step = Command(resume={interrupts[0].id: answer})
    except InfrastructureError as error:
        return _without_interrupt(state), FAILED, str(error) or type(error).__name__
    except NotApprovedError as error:
        return _without_interrupt(state), VIOLATION, f"{error.reason}: {error}"


def read_trace(services: GovernanceServices, thread: str) -> list[tuple[int, str, Any]]:
    """List what was done and decided in a thread; the same for every play of the same case."""
    entries = [
        (-1, entry.kind, {name: value for name, value in entry.body.items() if name not in _TIMED})
        for entry in services.log.entries(thread)
    ]
    return [*services.ledger.trace(thread), *entries]


def _without_interrupt(state: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in state.items() if name != "__interrupt__"}

"""Plays governed episodes: through the human gate, many at once; a stopped one can be continued anywhere.

A thread is one case in one store. Playing a thread again plays it from its beginning: what seats said, what
was displayed, ruled and done is in the log and is taken from there, so that no model is asked twice and
nothing is done twice; the play goes on where the log ends. A fault stays with its episode.
"""

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from langsmith.run_helpers import tracing_context
from pydantic import TypeAdapter

from roles.errors import InfrastructureError, UserError
from scenarios.team.playable import PlayableCase
from simulator.agents.agent import Agent
from simulator.game import TeamGame
from simulator.governance.gate import Gate, Reviewers
from simulator.governance.governed_graph import (
    Course,
    FullContext,
    FullState,
    describe_case,
    full_graph,
    open_full_case,
)
from simulator.governance.log import DecisionLog, open_log
from simulator.governance.outcomes import Outcomes
from simulator.governance.precedents import Precedents
from simulator.governance.reviewers import Reviewer
from simulator.governance.seals import Clock, NotApprovedError, digest_json, refuse
from simulator.graph.concurrency import deferred_garbage_collection, run_pool
from simulator.graph.seating import Seating
from simulator.graph.state import Reply, Step, list_parsed
from simulator.observer import Observer
from simulator.records import Turn

Case = TypeVar("Case", bound=PlayableCase)
MOST_SUPERSTEPS = 1_000  # far over what re-plans, rounds and refusals allow
WAITING, FAILED, VIOLATION = "waiting", "failed", "violation"
TURNS = TypeAdapter(tuple[Turn, ...])


@dataclass(frozen=True, slots=True, kw_only=True)
class GovernanceServices:
    """A store and the services on it; made by `open_services`. Several processes may work on one file."""

    log: DecisionLog
    gate: Gate
    reviewers: Reviewers
    precedents: Precedents


@dataclass(frozen=True, slots=True, kw_only=True)
class GovernedEpisode:
    """The result of one thread.

    Example: GovernedEpisode(thread="t1", case_key="team/test/0/7/2", status="completed", state={...},
                             error=None)
    """

    thread: str
    case_key: str
    status: str  # completed, completed_with_alerts, handed_over, not_approved; waiting, failed, violation
    state: Mapping[str, Any]  # the graph's last state
    error: str | None  # of a failed one: the infrastructure's fault; of a violation: what was refused


@asynccontextmanager
async def open_services(
    path: Path | None, *, key: bytes, clock: Clock = time.time, four_eyes: bool = False
) -> AsyncIterator[GovernanceServices]:
    """Open the services on a SQLite file (None: in memory); `four_eyes`: a plan needs two approvals.

    Raises:
        UserError: the file cannot be used, was changed, or is an old copy (see `store`).
    """
    with open_log(path, clock, key=key) as log:
        reviewers = Reviewers(log, four_eyes=four_eyes)
        gate, precedents = Gate(log, reviewers), Precedents(log)
        yield GovernanceServices(log=log, gate=gate, reviewers=reviewers, precedents=precedents)


class DurableAgents:
    """The agents of one thread: every answer is kept in its log, token for token; none is sampled twice."""

    def __init__(
        self, seating: Seating, game: TeamGame, thread: str, log: DecisionLog, observer: Observer | None
    ) -> None:
        """`game`: on the case as it stands, so that tools are those of a re-plan, too."""
        self._seating, self._game, self._thread, self._log = seating, game, thread, log
        self._observer, self._session = observer, f"{seating.stream}/{thread}"
        self._asked: dict[str, list[str]] = {}  # role -> all messages to it in this play
        self._live: dict[str, Agent] = {}  # that heard all of these

    async def ask(self, step: Step, role: str, message: str, state: Any) -> Reply:
        """See TeamAgents.ask; an answer that the log holds is read there."""
        asked = self._asked.setdefault(role, [])
        asked.append(message)
        heard = digest_json([role, *asked])
        known = self._find(heard)
        if known is not None:
            self._live.pop(role, None)
            return Reply(text=known["text"], number=len(asked), is_new=False)
        agent = self._live.pop(role, None) or self._resume(role, asked[:-1])
        num_turns = len(agent.turns)
        agent.see(list_parsed(state["reports"]))
        text = await agent.answer(message)
        turns = TURNS.dump_python(agent.turns[num_turns:], mode="json")
        body = {"role": role, "step": step, "heard": heard, "message": message, "text": text, "turns": turns}
        with self._log.transaction():
            known = self._find(heard)
            if known is None:  # nobody else plays the thread
                self._log.append(self._thread, "said", {**body, **agent.account()})
                self._live[role] = agent
        return Reply(text=text if known is None else known["text"], number=len(asked), is_new=True)

    def _find(self, heard: str) -> dict[str, Any] | None:
        said = self._log.find(self._thread, "said")
        return next((entry.body for entry in said if entry.body["heard"] == heard), None)

    def _resume(self, role: str, asked: list[str]) -> Agent:
        """Return the role's agent after these messages, made from the recorded turns."""
        found = [self._find(digest_json([role, *asked[: count + 1]])) for count in range(len(asked))]
        recorded = [one for one in found if one is not None]
        last = recorded[-1] if recorded else {}
        self._seating.engine.end_session(f"{self._session}/{role}")
        agent = self._seating.make_agent(role, self._session, self._game, observer=self._observer)
        agent.take_up(
            [turn for one in recorded for turn in TURNS.validate_python(one["turns"])],
            num_messages=len(asked),
            num_calls=last.get("num_tool_calls", 0),
            num_valid_calls=last.get("num_valid_tool_calls", 0),
        )
        return agent


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
    with deferred_garbage_collection(concurrency), services.log.grouping():
        newest = services.precedents.horizon()
        plays = []
        for thread, case in zip(threads, cases, strict=True):
            horizon = services.gate.open_case(thread, case.key, newest, list(case.seats))
            play = _Play(thread, case, horizon, services, seating, reviewer, outcomes(case), rounds)
            plays.append(play.run)
        return await run_pool(plays, concurrency=concurrency)


@dataclass(frozen=True, slots=True)
class _Play:
    """One thread to be played."""

    thread: str
    case: PlayableCase
    horizon: int
    services: GovernanceServices
    seating: Seating
    reviewer: Reviewer
    outcomes: Outcomes
    rounds: int

    async def run(self) -> GovernedEpisode:
        """Play; an engine's failure and a refused commit end the thread, and no session outlives it."""
        error: str | None = None
        observer = self.seating.watch(self.case, self.thread) if self.seating.watch else None
        if observer is not None:
            self.services.log.listeners[self.thread] = partial(_tell_decision, observer)
        try:
            context = make_context(
                self.thread, self.case, self.seating, self.outcomes, self.services, self.horizon, observer
            )
            game = self.seating.make_game(self.case)
            start = open_full_case(self.seating.open_case(self.case, game, rounds=self.rounds))
            state: Mapping[str, Any] = start
            try:
                with tracing_context(enabled=False):
                    state, status = await self._drive(start, context)
            except InfrastructureError as fault:
                status, error = FAILED, str(fault) or type(fault).__name__
            except NotApprovedError as refusal:
                status, error = VIOLATION, f"{refusal.reason}: {refusal}"
        except BaseException as fault:
            error = str(fault) or type(fault).__name__
            raise
        finally:
            self.seating.end_sessions(self.case, f"{self.seating.stream}/{self.thread}")
            self.services.log.listeners.pop(self.thread, None)
            if observer is not None:
                observer.on_end(error)
        return GovernedEpisode(
            thread=self.thread,
            case_key=self.case.key,
            status=status,
            state={name: value for name, value in state.items() if name != "__interrupt__"},
            error=error,
        )

    async def _drive(self, start: FullState, context: FullContext) -> tuple[Mapping[str, Any], str]:
        """Play the thread as far as it goes; return (last state, status).

        The checkpoints in memory carry the graph over its interrupts; the log carries the case.
        """
        graph = full_graph(tuple(start["briefs"]), InMemorySaver())
        step: Any = start
        while True:
            state = await graph.ainvoke(step, thread_config(self.thread), context=context, durability="exit")
            interrupts = state.get("__interrupt__", ())
            if not interrupts:
                await self.services.log.committed()
                status = self.services.gate.stand(self.thread).status
                if status is None:
                    refuse("tampered", f"thread {self.thread!r} has ended, but its case was never closed")
                return state, status
            if await self.services.gate.ask(interrupts[0].value["interrupt_id"], self.reviewer) is None:
                return state, WAITING
            step = Command(resume=True)


def make_context(
    thread: str,
    case: PlayableCase,
    seating: Seating,
    outcomes: Outcomes,
    services: GovernanceServices,
    horizon: int = 0,
    observer: Observer | None = None,
) -> FullContext:
    """Return the context of one thread's nodes."""
    course = Course(
        outcomes, seating.make_game, lambda case, game: seating.open_case(case, game, rounds=0)["briefs"]
    )
    return FullContext(
        thread=thread,
        agents=DurableAgents(seating, course.game, thread, services.log, observer),
        game=course.game,
        observer=observer,
        gate=services.gate,
        log=services.log,
        precedents=services.precedents,
        horizon=horizon,
        outcomes=outcomes,
        course=course,
        words=describe_case(case),
    )


def thread_config(thread: str) -> RunnableConfig:
    """Configure LangGraph for a thread."""
    return {"configurable": {"thread_id": thread}, "recursion_limit": MOST_SUPERSTEPS}


def _tell_decision(observer: Observer, kind: str, body: dict[str, Any]) -> None:
    if kind != "said":  # the nodes tell of these
        observer.on_governance(kind, body)

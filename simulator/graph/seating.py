"""Who sits where in an episode: agents with sessions of their own, and the truth-free case they are given."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from roles.base import Role
from roles.errors import unknown
from roles.team import RECONCILER
from scenarios.tasks.sandbox.sandbox import find_sandbox
from scenarios.team import Seat, parse_decision, parse_report
from scenarios.team.playable import PlayableCase, PublicCase
from simulator.agents.agent import Agent
from simulator.agents.agent_kinds import AgentKind, AgentLimits, introduce
from simulator.agents.seat_tools import SeatTools, with_seat_tools
from simulator.chat import Chat
from simulator.engines.base import Engine, Sampling
from simulator.engines.replay import ReplayEngine
from simulator.graph.team_graph import EpisodeContext, TeamState
from simulator.observer import Observer, Watch
from simulator.records import Trajectory, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Seating:
    """Who plays, and on what: the same for every episode of a call."""

    team: Mapping[str, str]  # role -> policy of the engine; several roles may share one
    engine: Engine
    chat: Chat
    sampling: Sampling
    stream: str  # begins every session's name; two calls with the same one sample the same
    max_turns: int  # of an agent per message
    roles: Mapping[str, Role]
    watch: Watch | None = None  # makes each episode's observer
    kinds: Mapping[str, AgentKind] = field(default_factory=dict)  # by role; chat where none is named
    limits: AgentLimits = field(default_factory=AgentLimits)  # of every agent

    def check(self, scenarios: Iterable[PlayableCase]) -> None:
        """Refuse a team in which a seat of these scenarios stays empty.

        Raises:
            UserError: names the seat; or a code agent is asked for and no sandbox works here.
        """
        if "code" in self.kinds.values():
            find_sandbox()
        for role in dict.fromkeys(role for scenario in scenarios for role in everybody(scenario)):
            if role not in self.roles:
                raise unknown("role", role, list(self.roles))
            if role not in self.team:
                raise unknown("seat, no policy for", role, list(self.team))

    def seat(
        self, scenario: PlayableCase, session: str, observer: Observer | None = None
    ) -> dict[str, Agent]:
        """A fresh agent for every seat and the reconciler, each with a session of its own."""
        return {
            role: self._agent(role, self.engine, session, scenario.seats.get(role), observer)
            for role in everybody(scenario)
        }

    def speakers(self, scenario: PlayableCase) -> dict[str, Role]:
        """The roles as their prompts have them, to read transcripts back with."""
        return list_speakers(scenario, self.roles, self.kinds)

    async def seat_again(
        self, role: str, brief: str, session: str, recorded: Trajectory
    ) -> tuple[Agent, str]:
        """An agent whose transcript is the recorded one up to the end of its report, and that report."""
        engine = ReplayEngine(self.engine, recorded.turns)
        agent = self._agent(role, engine, session, None)
        report = await agent.start(brief)
        engine.go_live()
        return agent, report

    def seat_after(
        self,
        role: str,
        seat: Seat | None,
        session: str,
        turns: Sequence[Turn],
        *,
        num_tool_calls: int = 0,
        num_valid_tool_calls: int = 0,
    ) -> Agent:
        """An agent that stands where these recorded turns end; nothing is asked again."""
        agent = self._agent(role, self.engine, session, seat)
        agent.take_up(turns, num_tool_calls=num_tool_calls, num_valid_tool_calls=num_valid_tool_calls)
        return agent

    def end_sessions(self, scenario: PlayableCase, session: str) -> None:
        """Give every session of the episode back to the engine, however it ended."""
        for role in everybody(scenario):
            self.engine.end_session(f"{session}/{role}")

    def _agent(
        self, role: str, engine: Engine, session: str, seat: Seat | None, observer: Observer | None = None
    ) -> Agent:
        kind, limits, sampling = self.kinds.get(role, "chat"), self.limits, self.sampling
        if limits.turn_tokens is not None:
            sampling = replace(sampling, max_completion_tokens=limits.turn_tokens)
        return Agent(
            role=self.roles[role],
            policy=self.team[role],
            engine=engine,
            chat=self.chat,
            sampling=sampling,
            session=f"{session}/{role}",
            call_tool=None if kind == "chat" else SeatTools(seat),
            kind=kind,
            prompt_role=_introduce_in_seat(self.roles[role], kind, seat),
            max_turns=limits.turns or self.max_turns,
            max_total_tokens=limits.total_tokens,
            max_tool_calls=limits.tool_calls,
            max_failed_calls=limits.failed_calls,
            observer=observer,
        )


def list_speakers(
    scenario: PlayableCase, roles: Mapping[str, Role], kinds: Mapping[str, AgentKind]
) -> dict[str, Role]:
    """The case's roles as their prompts have them, to read transcripts back with."""
    return {
        role: _introduce_in_seat(roles[role], kinds.get(role, "chat"), scenario.seats.get(role))
        for role in everybody(scenario)
        if role in roles
    }


def _introduce_in_seat(role: Role, kind: AgentKind, seat: Seat | None) -> Role:
    return role if kind == "chat" else introduce(with_seat_tools(role, seat), kind)


def everybody(scenario: PlayableCase) -> tuple[str, ...]:
    """The scenario's seats in order, then the reconciler."""
    return (*scenario.seats, RECONCILER)


def open_case(scenario: PlayableCase, *, rounds: int) -> TeamState:
    """The graph's first state: what the seats may read, nothing else."""
    return TeamState(
        options=list(scenario.options),
        briefs={role: seat.brief for role, seat in scenario.seats.items()},
        rounds=rounds,
        round=0,
        reports={},
        decision=None,
        votes={},
    )


def make_context(
    scenario: PlayableCase, agents: Mapping[str, Agent], observer: Observer | None = None
) -> EpisodeContext:
    """What the graph's nodes use: the agents, and parsers that know the case without facts or truth."""
    public = PublicCase.of(scenario)
    return EpisodeContext(
        agents=agents,
        read_report=partial(parse_report, public),
        read_decision=partial(parse_decision, public),
        observer=observer,
    )

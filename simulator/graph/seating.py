"""Makes the agents of an episode, each with a session of its own."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from roles.base import Role
from roles.errors import unknown
from roles.team import RECONCILER
from scenarios.tasks.sandbox import find_sandbox
from scenarios.team import PlanGame
from scenarios.team.playable import PlayableCase
from simulator.agents.agent import Agent, SeatTools
from simulator.agents.agent_kinds import AgentKind, AgentLimits, introduce
from simulator.chat import Chat
from simulator.engines.base import Engine, Sampling
from simulator.engines.scripted import ReplayEngine
from simulator.game import MakeGame, TeamGame
from simulator.graph.state import EpisodeContext, LiveAgents, TeamState, open_case
from simulator.observer import Observer, Watch
from simulator.records import Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Seating:
    """The policies, engine, chat and limits of all episodes of a call."""

    team: Mapping[str, str]  # role -> policy of the engine; several roles may share one
    engine: Engine
    chat: Chat
    sampling: Sampling
    stream: str  # begins every session's name; two calls with the same one sample the same
    max_turns: int  # of an agent per message
    roles: Mapping[str, Role]
    watch: Watch | None = None  # makes each episode's observer
    kinds: Mapping[str, AgentKind] = field(default_factory=dict)  # by role; see `choose_kind`
    limits: AgentLimits = field(default_factory=AgentLimits)  # of every agent
    make_game: MakeGame = PlanGame  # the joint game that is played

    def check(self, scenarios: Iterable[PlayableCase]) -> None:
        """Refuse a team in which a seat of these scenarios stays empty.

        Raises:
            UserError: names the seat; or a code agent is asked for and no sandbox works here.
        """
        if "code" in self.kinds.values():
            find_sandbox()
        for role in dict.fromkeys(role for scenario in scenarios for role in list_roles(scenario)):
            if role not in self.roles:
                raise unknown("role", role, list(self.roles))
            if role not in self.team:
                raise unknown("seat, no policy for", role, list(self.team))

    def make_agents(
        self, scenario: PlayableCase, game: TeamGame, session: str, observer: Observer | None = None
    ) -> dict[str, Agent]:
        """Make a fresh agent for every seat and the reconciler, each with a session of its own."""
        return {
            role: self.make_agent(role, session, game, observer=observer) for role in list_roles(scenario)
        }

    def open_case(self, scenario: PlayableCase, game: TeamGame, *, rounds: int) -> TeamState:
        """Return the graph's first state; a seat whose agent calls no tools reads what they would tell."""
        plain = [seat for seat in scenario.seats if choose_kind(self.kinds, seat, game) == "chat"]
        return open_case(scenario, game, rounds=rounds, without_tools=plain)

    async def replay_report(
        self, role: str, brief: str, session: str, game: TeamGame, recorded: Trajectory
    ) -> tuple[Agent, str]:
        """Return an agent whose transcript is the recorded one to the end of its report, and that report."""
        engine = ReplayEngine(self.engine, recorded.turns)
        agent = self.make_agent(role, session, game, engine=engine)
        report = await agent.answer(brief)
        engine.go_live()
        return agent, report

    def end_sessions(self, scenario: PlayableCase, session: str) -> None:
        """Give every session of the episode back to the engine, however it ended."""
        for role in list_roles(scenario):
            self.engine.end_session(f"{session}/{role}")

    def make_agent(
        self,
        role: str,
        session: str,
        game: TeamGame,
        *,
        engine: Engine | None = None,
        observer: Observer | None = None,
    ) -> Agent:
        """Make a fresh agent of one role, on another engine than the team's where that is given."""
        kind = choose_kind(self.kinds, role, game)
        return Agent(
            role=self.roles[role],
            policy=self.team[role],
            engine=engine or self.engine,
            chat=self.chat,
            sampling=self.sampling,
            session=f"{session}/{role}",
            call_tool=None if kind == "chat" else SeatTools(game, role),
            kind=kind,
            prompt_role=make_prompt_role(game, role, kind),
            max_turns=self.max_turns,
            limits=self.limits,
            observer=observer,
        )


def choose_kind(kinds: Mapping[str, AgentKind], role: str, game: TeamGame) -> AgentKind:
    """Return the kind that is named for the role: where none is, react if the game gives it tools."""
    return kinds.get(role) or ("react" if game.prompt_role(role).tools else "chat")


def make_prompt_role(game: TeamGame, role: str, kind: AgentKind) -> Role:
    """Return the role as its prompt introduces it to an agent of this kind."""
    return introduce(game.prompt_role(role, with_tools=kind != "chat"), kind)


def list_prompt_roles(
    scenario: PlayableCase, game: TeamGame, kinds: Mapping[str, AgentKind]
) -> dict[str, Role]:
    """Return the case's roles as their prompts have them, to read transcripts back with."""
    return {
        role: make_prompt_role(game, role, choose_kind(kinds, role, game)) for role in list_roles(scenario)
    }


def list_roles(scenario: PlayableCase) -> tuple[str, ...]:
    """List the scenario's seats in order, then the reconciler."""
    return (*scenario.seats, RECONCILER)


def make_context(
    game: TeamGame, agents: Mapping[str, Agent], observer: Observer | None = None
) -> EpisodeContext:
    """Return the context of an episode's nodes: agents in memory, and the game."""
    return EpisodeContext(agents=LiveAgents(agents), game=game, observer=observer)

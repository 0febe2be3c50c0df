"""The context of an episode's nodes, which its state must not hold: game, agents, observer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from simulator.game import Reports, TeamGame
from simulator.graph.state import list_parsed
from simulator.observer import Observer

Step = Literal["report", "reconcile", "reply", "vote"]


class Reply(NamedTuple):
    """An agent's answer to a message.

    Example: Reply(text='{"vote": "accept"}', number=2, is_new=True)
    """

    text: str
    number: int  # of the message in the role's transcript, from 1
    is_new: bool  # False where the answer was played before and recorded


class TeamAgents(Protocol):
    """The agents of one episode."""

    async def ask(self, step: Step, role: str, message: str, state: Any) -> Reply:
        """Ask the role and return its answer; `state` is what the asking node was given."""
        ...


class MessageReader(Protocol):
    """An agent: it reads messages in one transcript and answers each."""

    async def answer(self, message: str) -> str: ...

    def see(self, reports: Reports) -> None:
        """Let the agent's tools reckon with these reports."""
        ...

    @property
    def num_messages(self) -> int: ...


class LiveAgents:
    """Agents whose transcripts live in memory alone."""

    def __init__(self, agents: Mapping[str, MessageReader]) -> None:
        """`agents`: by role, for every seat and the reconciler."""
        self._agents = agents

    async def ask(self, step: Step, role: str, message: str, state: Any) -> Reply:
        """See TeamAgents.ask.

        Raises:
            ValueError: no agent plays the role.
        """
        if role not in self._agents:
            raise ValueError(f"no agent for {role}")
        agent = self._agents[role]
        agent.see(list_parsed(state["reports"]))
        text = await agent.answer(message)
        return Reply(text=text, number=agent.num_messages, is_new=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeContext:
    """The context of the nodes of every team graph."""

    agents: TeamAgents
    game: TeamGame
    observer: Observer | None = None  # told of reports, decisions and votes

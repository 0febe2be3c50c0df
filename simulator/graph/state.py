"""The state of a team's graph, JSON values without truth and facts, and the context that it must not hold."""

import operator
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, Protocol

from typing_extensions import TypedDict  # typing's own has no JSON schema before Python 3.12

from scenarios.team.playable import PlayableCase
from simulator.game import Parsed, Reports, TeamGame
from simulator.observer import Observer

Step = Literal["report", "reconcile", "reply", "vote"]

Update = dict[str, Any]


class Utterance(TypedDict):
    """A role's text, and what the game reads in it (None: malformed)."""

    text: str
    parsed: Any


class Answered(TypedDict):
    """A question of ReconcileGPT and the seat's reply to it."""

    ask: Utterance
    reply: Utterance


class ReconcilerView(TypedDict):
    """All that the reconcile node is given: no brief of any specialist is in it."""

    options: list[str]
    reports: Annotated[dict[str, Utterance], operator.or_]  # by seat; parsed holds what replies added, too
    questions: int  # most questions that ReconcileGPT may ask
    question: Utterance | None  # its last text where that was a question
    answered: list[Answered]
    votes: dict[str, Utterance]  # on the last draft; parsed is the vote, or None
    round: int  # decisions drafted so far


class TeamState(ReconcilerView):
    """Everything that the graph of the assess protocol carries.

    Example: {"case": "team/train/0/7/2", "options": ["A", "B"], "briefs": {"cto": "Northbank ..."},
              "rounds": 1, "round": 0, "reports": {}, "questions": 1, "question": None, "answered": [],
              "decision": None, "votes": {}}
    """

    case: str  # the case's key
    briefs: dict[str, str]  # seat -> what its specialist reads; the keys are the seats, in order
    rounds: int  # most rounds of votes: 0 one draft without a vote, 1 one draft and its vote, 2 one more
    decision: Utterance | None  # ReconcileGPT's last draft


def open_case(
    case: PlayableCase, game: TeamGame, *, rounds: int, without_tools: Collection[str] = ()
) -> TeamState:
    """Return the graph's first state: what the seats may read, nothing else.

    `without_tools`: seats whose agent calls no tools; their briefs hold what tools would tell.
    """
    return TeamState(
        case=case.key,
        options=list(case.options),
        briefs={
            role: game.write_report_brief(role, with_tools=role not in without_tools) for role in case.seats
        },
        rounds=rounds,
        round=0,
        reports={},
        questions=game.most_questions,
        question=None,
        answered=[],
        decision=None,
        votes={},
    )


def list_parsed(said: Mapping[str, Utterance]) -> dict[str, Parsed | None]:
    """Return what the game read, by seat."""
    return {role: utterance["parsed"] for role, utterance in said.items()}


def list_objectors(state: ReconcilerView) -> list[str]:
    """List the seats that object to the last draft."""
    votes = list_parsed(state["votes"])
    return [role for role, vote in votes.items() if vote is not None and vote["vote"] == "object"]


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


class MessageReader(Protocol):
    """An agent: it reads messages in one transcript and answers each."""

    async def answer(self, message: str) -> str: ...

    def see(self, reports: Reports) -> None:
        """Let the agent's tools reckon with these reports."""

    @property
    def num_messages(self) -> int: ...


class LiveAgents:
    """Agents whose transcripts live in memory alone."""

    def __init__(self, agents: Mapping[str, MessageReader]) -> None:
        """`agents`: by role, for every seat and the reconciler."""
        self._agents = agents

    async def ask(self, step: Step, role: str, message: str, state: Any) -> Reply:
        """Ask as TeamAgents do; a ValueError where no agent plays the role."""
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

"""The state of a team's graph: JSON values only, no truth and no facts."""

import operator
from collections.abc import Collection, Mapping
from typing import Annotated, Any

from typing_extensions import TypedDict  # typing's own has no JSON schema before Python 3.12

from scenarios.team.playable import PlayableCase
from simulator.game import Parsed, TeamGame

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

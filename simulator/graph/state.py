"""The state of a team's graph: JSON values only, no truth and no facts."""

import operator
from typing import Annotated, Any

from typing_extensions import TypedDict  # typing's own has no JSON schema before Python 3.12

from scenarios.team.playable import PlayableCase

Update = dict[str, Any]


class Utterance(TypedDict):
    """A role's text, and what the game reads in it (None: malformed)."""

    text: str
    parsed: Any


class ReconcilerView(TypedDict):
    """All that the reconcile node is given: no brief of any specialist is in it."""

    options: list[str]
    reports: Annotated[dict[str, Utterance], operator.or_]  # by seat
    votes: dict[str, Utterance]  # on the last draft; parsed is "accept", "object" or None
    round: int  # decisions drafted so far


class TeamState(ReconcilerView):
    """Everything that the graph of the assess protocol carries.

    Example: {"case": "team/train/0/7/2", "options": ["A", "B"], "briefs": {"cto": "Bank case. ..."},
              "rounds": 1, "round": 0, "reports": {}, "decision": None, "votes": {}}
    """

    case: str  # the case's key
    briefs: dict[str, str]  # seat -> what its specialist reads; the keys are the seats, in order
    rounds: int  # most rounds of votes: 0 one draft without a vote, 1 one draft and its vote, 2 one more
    decision: Utterance | None  # ReconcileGPT's last draft


def open_case(case: PlayableCase, *, rounds: int) -> TeamState:
    """Return the graph's first state: what the seats may read, nothing else."""
    return TeamState(
        case=case.key,
        options=list(case.options),
        briefs={role: seat.brief for role, seat in case.seats.items()},
        rounds=rounds,
        round=0,
        reports={},
        decision=None,
        votes={},
    )


def list_objectors(state: ReconcilerView) -> list[str]:
    """List the seats that object to the last draft."""
    return [role for role, vote in state["votes"].items() if vote["parsed"] == "object"]

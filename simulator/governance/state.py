"""The state of the governed graph: the team's state and more, as plain JSON.

Nothing in the state is permission: whether something was approved or done is asked of the gate, each time.
"""

import operator
from typing import Annotated, Any

from typing_extensions import TypedDict  # typing's own has no JSON schema before Python 3.12

from simulator.governance.outcomes import Observation
from simulator.governance.precedents import Precedent
from simulator.graph.state import TeamState


class Duty(TypedDict):
    """RACI roles of a case: responsible, accountable (exactly one), consulted, informed.

    Example: {"responsible": ["cto", "coo"], "accountable": "cto", "consulted": ["coo"],
              "informed": ["reviewer"]}
    """

    responsible: list[str]
    accountable: str
    consulted: list[str]
    informed: list[str]


class Attempt(TypedDict):
    """One plan that was carried out, and its outcome."""

    attempt: int
    option: str
    funded: dict[str, list[str]]  # seat -> names of what was bought
    observation: Observation
    alerts: list[str]  # seats whose KPI fell under its floor, or that lost too much


class FullState(TeamState):
    """Everything that the governed graph carries; `round` counts drafts since the case or the re-plan."""

    precedents: list[Precedent]
    duty: Duty | None
    asked: Annotated[dict[str, list[str]], operator.or_]  # role -> all messages to it, in order
    redraft_reason: str  # why ReconcileGPT drafts anew; it reads this before the brief
    ruled_out: dict[str, str]  # option -> why the reviewer took it out of the case
    changed: list[str]  # seats whose facts changed: they report again before the re-plan
    edited: str | None  # the reviewer's own option, to be proposed anew
    proposal: dict[str, Any] | None
    ruling: dict[str, Any] | None  # how the last review ended; a claim, verified at the commit
    refusal: str  # why the last answer did not count
    attempt: int  # 0 the first plan, up to 3 re-plans
    revision: int  # edits and rejections
    refusals: int  # answers that did not count
    committed: str  # digest, for the route only; "" where nothing is
    delivered: Annotated[dict[str, str], operator.or_]  # seat -> digest of the proposal it carried out last
    observation: Observation | None
    alerts: list[str]
    history: Annotated[list[Attempt], operator.add]
    status: str


def open_full_case(opened: TeamState) -> FullState:
    """Return the graph's first state: what the seats may read, nothing else."""
    return FullState(
        **opened,
        precedents=[],
        duty=None,
        asked={},
        redraft_reason="",
        ruled_out={},
        changed=[],
        edited=None,
        proposal=None,
        ruling=None,
        refusal="",
        attempt=0,
        revision=0,
        refusals=0,
        committed="",
        delivered={},
        observation=None,
        alerts=[],
        history=[],
        status="open",
    )

"""What the governed graph carries, and what stands beside it: plain JSON in the state, services outside.

Nothing in the state is permission: whether something was approved or done is asked of the gate, each time.
"""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, NamedTuple, Protocol

from langgraph.config import get_config
from langgraph.types import Interrupt, interrupt
from pydantic import ValidationError
from typing_extensions import TypedDict  # typing's own has no JSON schema before Python 3.12

from roles.team import Decision, SpecialistReport
from scenarios.team.playable import PlayableCase
from simulator.governance.gate.approvals import ApprovalRecord, Proposal, refuse
from simulator.governance.gate.gate import Gate
from simulator.governance.outcomes import Observation, Outcomes
from simulator.governance.precedents import Precedent, PrecedentStore
from simulator.governance.store.decision_log import DecisionLog
from simulator.governance.store.effects import EffectsLedger
from simulator.graph.team_graph import Utterance


class Duty(TypedDict):
    """RACI: who does it, who answers for it (exactly one), who is asked, who is told.

    Example: {"responsible": ["cto", "coo"], "accountable": "cto", "consulted": ["coo"],
              "informed": ["reviewer"]}
    """

    responsible: list[str]
    accountable: str
    consulted: list[str]
    informed: list[str]


class Attempt(TypedDict):
    """One plan that was carried out, and what came of it."""

    attempt: int
    option: str
    kpis: dict[str, int]
    shock: str
    alerts: list[str]  # seats whose KPI fell under its floor


class FullState(TypedDict):
    """Everything that the governed graph carries."""

    case: str
    options: list[str]
    briefs: dict[str, str]  # seat -> what its specialist reads; the keys are the seats, in order
    rounds: int  # rounds of votes per draft at most
    precedents: list[Precedent]
    duty: Duty | None
    reports: Annotated[dict[str, Utterance], operator.or_]
    asked: Annotated[dict[str, list[str]], operator.or_]  # role -> all messages to it, in order
    decision: Utterance | None  # ReconcileGPT's last draft
    votes: dict[str, Utterance]  # on the last draft
    round: int  # drafts since the case or the re-plan was opened
    news: str  # why ReconcileGPT drafts anew; it reads this before the brief
    ruled_out: dict[str, str]  # option -> why it is out for the rest of the case
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


def open_full_case(case: PlayableCase, *, rounds: int) -> FullState:
    """The graph's first state: what the seats may read, nothing else."""
    return FullState(
        case=case.key,
        options=list(case.options),
        briefs={role: seat.brief for role, seat in case.seats.items()},
        rounds=rounds,
        precedents=[],
        duty=None,
        reports={},
        asked={},
        decision=None,
        votes={},
        round=0,
        news="",
        ruled_out={},
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


class Place(NamedTuple):
    """Where in a play a node runs: what its effects are keyed by.

    Example: Place(thread="t1", superstep=7, interrupt_id="9f2c...")
    """

    thread: str  # as the checkpointer knows it
    superstep: int
    interrupt_id: str  # of the first interrupt that this run of the node would raise


class Speaks(Protocol):
    """The team's voices as nodes need them."""

    async def say(self, node: str, superstep: int, role: str, asked: Sequence[str]) -> str: ...


def locate() -> Place:
    """The place of the node that LangGraph is running."""
    config = get_config()
    namespace = config["configurable"]["checkpoint_ns"]
    return Place(
        thread=config["configurable"]["thread_id"],
        superstep=config["metadata"]["langgraph_step"],
        interrupt_id=Interrupt.from_ns(value=None, ns=namespace).id,
    )


@cache
def _answer_schema() -> dict[str, Any]:
    return ApprovalRecord.model_json_schema()


def ask_reviewer(request: dict[str, Any]) -> Any:
    """Stop here until somebody answers; the answer, whatever it is."""
    return interrupt(request, response_schema=_answer_schema())


@dataclass(frozen=True, slots=True, kw_only=True)
class FullContext:
    """What nodes use and state must not hold. Truth is behind `outcomes`, the key behind `gate`."""

    thread: str
    voices: Speaks
    read_report: Callable[[str], SpecialistReport | None]  # strict; None for a malformed report
    read_decision: Callable[[str], Decision | None]
    gate: Gate
    ledger: EffectsLedger
    log: DecisionLog
    precedents: PrecedentStore
    horizon: int  # newest precedent that this thread may recall
    outcomes: Outcomes
    locate: Callable[[], Place] = field(default=locate)
    ask: Callable[[dict[str, Any]], Any] = field(default=ask_reviewer)


def read_proposal(state: FullState, context: FullContext) -> Proposal:
    """The state's proposal, which is this thread's.

    Raises:
        NotApprovedError: "tampered": there is none, it is malformed, or thread, context and it disagree.
    """
    try:
        proposal = Proposal.model_validate(state["proposal"])
    except ValidationError as error:
        refuse("tampered", f"the state holds no proposal: {error.error_count()} errors")
    if not proposal.thread == context.thread == context.locate().thread:
        refuse("tampered", f"a proposal of thread {proposal.thread!r} stands in another thread's state")
    return proposal

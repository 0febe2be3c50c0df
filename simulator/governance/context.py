"""Services for the governed graph's nodes, which its state must not hold, and the place of a node's run."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from langgraph.config import get_config
from langgraph.types import Interrupt, interrupt
from pydantic import ValidationError

from simulator.governance.course import Course
from simulator.governance.gate.approvals import ApprovalRecord, CaseWords, Proposal, refuse
from simulator.governance.gate.gate import Gate
from simulator.governance.outcomes import Outcomes
from simulator.governance.precedents import PrecedentStore
from simulator.governance.state import FullState
from simulator.governance.store.decision_log import DecisionLog
from simulator.governance.store.effects import EffectsLedger
from simulator.graph.context import EpisodeContext


class Place(NamedTuple):
    """The place of a node's run in a thread, by which its effects are keyed.

    Example: Place(thread="t1", superstep=7, interrupt_id="9f2c...")
    """

    thread: str  # as the checkpointer knows it
    superstep: int
    interrupt_id: str  # of the first interrupt that this run of the node would raise


def locate() -> Place:
    """Return the place of the node that LangGraph is running."""
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
    """Interrupt the graph until an answer is given, and return the answer unchecked."""
    return interrupt(request, response_schema=_answer_schema())


@dataclass(frozen=True, slots=True, kw_only=True)
class FullContext(EpisodeContext):
    """Services for the nodes of the governed graph. Truth is behind `outcomes`, the key behind `gate`.

    `game` is the one of `course`: after a re-plan that of the case as it stands then.
    """

    thread: str
    gate: Gate
    ledger: EffectsLedger
    log: DecisionLog
    precedents: PrecedentStore
    horizon: int  # newest precedent that this thread may recall
    outcomes: Outcomes
    course: Course
    words: CaseWords
    locate: Callable[[], Place] = field(default=locate)
    ask: Callable[[dict[str, Any]], Any] = field(default=ask_reviewer)


def read_proposal(state: FullState, context: FullContext) -> Proposal:
    """Read this thread's proposal from the state.

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

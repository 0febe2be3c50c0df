"""The request that a reviewer is shown."""

from simulator.conflicts import Name
from simulator.governance.gate.approvals import Hex64, Proposal, Record


class ReviewRequest(Record):
    """A proposal as displayed to a reviewer."""

    thread: Name
    interrupt_id: Name
    digest: Hex64  # of the proposal, as signed
    proposal: Proposal
    refusal: str  # why the answer before did not count, "" without one

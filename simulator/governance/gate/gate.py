"""The human gate as the store sees it: what was displayed, how it was ruled on, what may be carried out.

Nothing that the graph's state says is believed: the digest is computed again from the proposal, the record is
verified again, and permission to act is a row that only `commit` writes, checked again by who acts.
"""

import json
import sqlite3
from typing import Any, Literal

from typing_extensions import TypedDict

from simulator.governance.gate.approvals import (
    ApprovalRecord,
    Clock,
    NotApprovedError,
    PlanPart,
    Proposal,
    read_approval,
    refuse,
    verify_approval,
)
from simulator.governance.store.database import Store, canonical_json, transaction
from simulator.governance.store.decision_log import DecisionLog


class Settled(TypedDict):
    """How a request ended, as JSON.

    Example: {"ruling": "refused", "reason": "expired", "option": None, "feedback": "", "approval": None}
    """

    ruling: Literal["approve", "edit", "reject", "refused"]
    reason: str  # of a refusal, one word; "" otherwise
    option: str | None  # the reviewer's own, after an edit
    feedback: str
    approval: dict[str, Any] | None  # the signed record of an approval, for the commit to verify


class Gate:
    """Requests, rulings and commits of one store."""

    def __init__(self, connection: Store, *, key: bytes, clock: Clock, log: DecisionLog) -> None:
        self._connection, self._key, self._clock, self._log = connection, key, clock, log

    def open_request(self, interrupt_id: str, proposal: Proposal, body: dict[str, Any]) -> None:
        """Note what is displayed under this interrupt; the first time counts, it is never displayed anew."""
        with transaction(self._connection):
            added = self._connection.execute(
                "INSERT OR IGNORE INTO requests (thread, interrupt_id, digest, body) VALUES (?, ?, ?, ?)",
                (proposal.thread, interrupt_id, proposal.digest, canonical_json(body)),
            )
            if added.rowcount:
                self._log.append(
                    proposal.thread,
                    "requested",
                    {
                        "digest": proposal.digest,
                        "interrupt_id": interrupt_id,
                        "option": proposal.option,
                        "risk_score": proposal.risk_score,
                    },
                )

    def find_settled(self, interrupt_id: str) -> Settled | None:
        """How the request was settled, None while it is open or unknown."""
        row = self._connection.execute(
            "SELECT settled FROM requests WHERE interrupt_id = ?", (interrupt_id,)
        ).fetchone()
        return None if row is None or row[0] is None else json.loads(row[0])

    def settle(self, interrupt_id: str, proposal: Proposal, answer: Any) -> Settled:
        """Judge an answer to a request, once: whatever comes later gets the first judgement.

        An edit or a rejection uses its nonce up here. An approval is only handed on: `commit` uses it.
        """
        with transaction(self._connection, durable=True):
            known = self.find_settled(interrupt_id)
            if known is not None:
                return known
            try:
                settled = self._judge(interrupt_id, proposal, answer)
            except NotApprovedError as error:
                settled = Settled(
                    ruling="refused", reason=error.reason, option=None, feedback="", approval=None
                )
                self._log.append(
                    proposal.thread, "refused", {"digest": proposal.digest, "reason": error.reason}
                )
            self._connection.execute(
                "UPDATE requests SET settled = ? WHERE interrupt_id = ?",
                (canonical_json(settled), interrupt_id),
            )
            return settled

    def commit(self, proposal: Proposal, answer: Any) -> None:
        """Permit exactly this proposal to be carried out; uses the approval up. Joins an open transaction.

        Committing the same proposal again by the same record changes nothing.

        Raises:
            NotApprovedError: for the first of all the reasons why not; nothing has changed.
        """
        with transaction(self._connection, durable=True):
            interrupt_id, digest = self._latest_request(proposal.thread)
            if digest != proposal.digest:
                refuse("other_proposal", "the latest request displayed another proposal")
            record = self._verify(interrupt_id, proposal, answer)
            if record.decision != "approve":
                refuse("not_approve", f"the reviewer's decision is {record.decision}")
            if self._committed_by(proposal, record):
                return
            self._use_nonce(record)
            try:
                self._connection.execute(
                    "INSERT INTO commits VALUES (?, ?, ?, ?)",
                    (proposal.thread, digest, proposal.attempt, canonical_json(record.model_dump())),
                )
            except sqlite3.IntegrityError:
                refuse("committed", f"attempt {proposal.attempt} of this thread was committed before")
            self._log.append(proposal.thread, "committed", _log_body(record, proposal))

    def require_commit(self, proposal: Proposal) -> ApprovalRecord:
        """The approval under which exactly this proposal was committed.

        Raises:
            NotApprovedError: it was not, or the commit on disk is not one of ours.
        """
        row = self._connection.execute(
            "SELECT approval FROM commits WHERE thread = ? AND digest = ?", (proposal.thread, proposal.digest)
        ).fetchone()
        if row is None:
            refuse("not_committed", f"the proposal of thread {proposal.thread!r} was never committed")
        try:
            value = json.loads(row[0])
        except ValueError:
            value = None
        record = read_approval(value, key=self._key)
        if (record.thread, record.proposal_digest, record.decision) != (
            proposal.thread,
            proposal.digest,
            "approve",
        ):
            refuse("forged", "the commit's approval is of something else")
        return record

    def is_committed(self, proposal: Proposal) -> bool:
        """Whether exactly this proposal was committed by an approval of ours."""
        try:
            self.require_commit(proposal)
        except NotApprovedError:
            return False
        return True

    def deliver(self, proposal: Proposal, part: PlanPart) -> None:
        """Carry out one part of a committed proposal; a part that was delivered is not delivered again.

        Raises:
            NotApprovedError: not committed, or not a part of it.
        """
        self.require_commit(proposal)
        if part not in proposal.parts:
            refuse("no_part", f"{part.role} has no such part in the proposal")
        with transaction(self._connection):
            added = self._connection.execute(
                "INSERT OR IGNORE INTO deliveries VALUES (?, ?, ?, ?)",
                (proposal.thread, proposal.digest, part.role, part.action),
            )
            if added.rowcount:
                body = {"digest": proposal.digest, "role": part.role, "action": part.action}
                self._log.append(proposal.thread, "executed", body)

    def list_delivered(self, proposal: Proposal) -> list[str]:
        """The seats whose parts were delivered, in order of name."""
        rows = self._connection.execute(
            "SELECT role FROM deliveries WHERE thread = ? AND digest = ? ORDER BY role",
            (proposal.thread, proposal.digest),
        )
        return [str(role) for (role,) in rows.fetchall()]

    def _judge(self, interrupt_id: str, proposal: Proposal, answer: Any) -> Settled:
        latest, digest = self._latest_request(proposal.thread)
        if latest != interrupt_id:
            refuse("superseded", "a later request stands in this thread")
        if digest != proposal.digest:
            refuse("other_proposal", "the proposal is not the one that was displayed")
        record = self._verify(interrupt_id, proposal, answer)
        if record.decision == "approve":
            if self._is_used(record):
                refuse("used", "the approval was used before")
        else:
            self._use_nonce(record)
            kind: Literal["edited", "rejected"] = "edited" if record.decision == "edit" else "rejected"
            self._log.append(
                proposal.thread,
                kind,
                _log_body(record, proposal) | {"to": record.option, "feedback": record.feedback},
            )
        return Settled(
            ruling=record.decision,
            reason="",
            option=record.option,
            feedback=record.feedback,
            approval=record.model_dump() if record.decision == "approve" else None,
        )

    def _verify(self, interrupt_id: str, proposal: Proposal, answer: Any) -> ApprovalRecord:
        return verify_approval(
            answer,
            key=self._key,
            thread=proposal.thread,
            interrupt_id=interrupt_id,
            digest=proposal.digest,
            now_s=self._clock(),
        )

    def _latest_request(self, thread: str) -> tuple[str, str]:
        row = self._connection.execute(
            "SELECT interrupt_id, digest FROM requests WHERE thread = ? ORDER BY sequence DESC LIMIT 1",
            (thread,),
        ).fetchone()
        if row is None:
            refuse("never_displayed", f"nothing was ever displayed in thread {thread!r}")
        return str(row[0]), str(row[1])

    def _committed_by(self, proposal: Proposal, record: ApprovalRecord) -> bool:
        try:
            return self.require_commit(proposal) == record
        except NotApprovedError:
            return False

    def _is_used(self, record: ApprovalRecord) -> bool:
        """Whether the nonce was consumed; the log is asked too, so that a deleted row does not free it."""
        consumed = self._connection.execute(
            "SELECT 1 FROM nonces WHERE nonce = ?", (record.nonce,)
        ).fetchone()
        logged = self._connection.execute(
            "SELECT 1 FROM decision_log WHERE thread = ? AND json_extract(body, '$.nonce') = ?",
            (record.thread, record.nonce),
        ).fetchone()
        return consumed is not None or logged is not None

    def _use_nonce(self, record: ApprovalRecord) -> None:
        if self._is_used(record):
            refuse("used", "the approval was used before")
        self._connection.execute("INSERT INTO nonces VALUES (?, ?)", (record.nonce, record.thread))


def _log_body(record: ApprovalRecord, proposal: Proposal) -> dict[str, Any]:
    return {
        "digest": proposal.digest,
        "option": proposal.option,
        "attempt": proposal.attempt,
        "reviewer": record.reviewer,
        "interrupt_id": record.interrupt_id,
        "nonce": record.nonce,
        "signature": record.signature,
    }

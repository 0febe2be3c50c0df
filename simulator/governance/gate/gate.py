"""The human gate in the store: rulings on requests, and permissions to carry out.

Nothing that the graph's state says is believed: the digest is computed again from the proposal, the record is
verified again, and permission to act is a row under the store's seal that only `commit` writes.
"""

import json
from typing import Any, Literal

from simulator.governance.gate.approvals import (
    ApprovalRecord,
    NotApprovedError,
    PlanPart,
    Proposal,
    read_approval,
    refuse,
    verify_approval,
)
from simulator.governance.gate.eligibility import Reviewers
from simulator.governance.gate.requests import Requests, Settled, make_refusal
from simulator.governance.gate.seals import is_sealed, seal
from simulator.governance.store.database import Store, canonical_json, transaction
from simulator.governance.store.decision_log import DecisionLog


class Gate:
    """Rulings and commits of one store."""

    def __init__(
        self, connection: Store, *, key: bytes, log: DecisionLog, requests: Requests, reviewers: Reviewers
    ) -> None:
        self._connection, self._key, self._log = connection, key, log
        self.requests, self._reviewers = requests, reviewers

    def settle(self, interrupt_id: str, proposal: Proposal, answer: Any) -> Settled:
        """Judge an answer to a request, once: whatever comes later gets the first judgement.

        An edit or a rejection uses its nonce up here. An approval is only handed on: `commit` uses it.

        Raises:
            NotApprovedError: "forged": the ruling on disk is not one of ours.
        """
        with transaction(self._connection, durable=True):
            known = self.requests.find_settled(interrupt_id)
            if known is not None:
                return known
            try:
                settled = self._judge(interrupt_id, proposal, answer)
            except NotApprovedError as error:
                settled = make_refusal(error.reason)
                self._log_refusal(proposal, error.reason, interrupt_id)
            self.requests.settle(interrupt_id, settled)
            return settled

    def commit(self, proposal: Proposal, answer: Any) -> str:
        """Permit exactly this proposal to be carried out, or refuse it; return "" or the reason.

        Uses the approval up. Committing the same proposal again by the same record changes nothing. A
        refusal is logged in the same transaction, and it is final for the request that was approved.
        """
        with transaction(self._connection, durable=True):
            try:
                self._commit(proposal, answer)
            except NotApprovedError as error:
                refused = self._revoke(proposal, answer, error.reason)
                self._log_refusal(proposal, error.reason, refused)
                return error.reason
            return ""

    def require_commit(self, proposal: Proposal) -> ApprovalRecord:
        """Return the approval under which exactly this proposal was committed.

        Raises:
            NotApprovedError: it was not, or the commit on disk is not one of ours, or not in the log.
        """
        row = self._connection.execute(
            "SELECT attempt, approval, seal FROM commits WHERE thread = ? AND digest = ?",
            (proposal.thread, proposal.digest),
        ).fetchone()
        if row is None:
            refuse("not_committed", f"the proposal of thread {proposal.thread!r} was never committed")
        attempt, text, sealed = row
        if not is_sealed(self._key, "commit", [proposal.thread, proposal.digest, attempt, text], sealed):
            refuse("forged", "the commit on disk is not one of the gate's")
        record = read_approval(json.loads(text), key=self._key)
        wanted = (proposal.thread, proposal.digest, "approve", proposal.attempt)
        if (record.thread, record.proposal_digest, record.decision, attempt) != wanted:
            refuse("forged", "the commit's approval is of something else")
        for entry in self._log.find(proposal.thread, "committed"):
            if entry.body == _log_body(record, proposal) and entry.at_s < record.expires_at_s:
                return record
        refuse("unlogged", "the decision log knows no such commit")

    def is_committed(self, proposal: Proposal) -> bool:
        """Return whether exactly this proposal was committed by an approval of ours."""
        try:
            self.require_commit(proposal)
        except NotApprovedError:
            return False
        return True

    def deliver(self, proposal: Proposal, part: PlanPart) -> None:
        """Carry out one part of a committed proposal; a part that was delivered is not delivered again.

        Raises:
            NotApprovedError: not committed, not a part of it, or the case is closed.
        """
        self.require_commit(proposal)
        if part not in proposal.parts:
            refuse("no_part", f"{part.role} has no such part in the proposal")
        with transaction(self._connection):
            if part.role in self.list_delivered(proposal):
                return
            self.requests.require_unclosed(proposal.thread)
            done = [proposal.thread, proposal.digest, part.role, part.action]
            self._connection.execute(
                "INSERT OR REPLACE INTO deliveries VALUES (?, ?, ?, ?, ?)",
                (*done, seal(self._key, "delivery", done)),
            )
            body = {"digest": proposal.digest, "role": part.role, "action": part.action}
            self._log.append(proposal.thread, "executed", body)

    def list_delivered(self, proposal: Proposal) -> list[str]:
        """Return the seats whose parts were delivered, in order of name; a row without our seal is none."""
        rows = self._connection.execute(
            "SELECT role, action, seal FROM deliveries WHERE thread = ? AND digest = ? ORDER BY role",
            (proposal.thread, proposal.digest),
        ).fetchall()
        actions = {part.role: part.action for part in proposal.parts}
        return [
            str(role)
            for role, action, sealed in rows
            if actions.get(role) == action
            and is_sealed(self._key, "delivery", [proposal.thread, proposal.digest, role, action], sealed)
        ]

    def close(self, proposal: Proposal, status: str) -> None:
        """Close the case with this status; one that is closed keeps the status that it has."""
        with transaction(self._connection):
            if not self._log.find(proposal.thread, "closed"):
                self._log.append(proposal.thread, "closed", {"digest": proposal.digest, "status": status})

    def read_status(self, thread: str) -> str:
        """Return the status with which the case was closed.

        Raises:
            NotApprovedError: "tampered": it was not closed, or the log was changed.
        """
        closed = self._log.find(thread, "closed")
        if not closed:
            refuse("tampered", f"thread {thread!r} has ended, but its case was never closed")
        return str(closed[0].body["status"])

    def _commit(self, proposal: Proposal, answer: Any) -> None:
        interrupt_id, digest = self.requests.find_latest(proposal.thread)
        if digest != proposal.digest:
            refuse("other_proposal", "the latest request displayed another proposal")
        record = self._verify(interrupt_id, proposal, answer)
        if record.decision != "approve":
            refuse("not_approve", f"the reviewer's decision is {record.decision}")
        if self._committed_by(proposal, record):
            return
        self.requests.require_unclosed(proposal.thread)
        self.requests.require_unruled(proposal.thread, interrupt_id)
        settled = self.requests.find_settled(interrupt_id)
        if settled is None or settled["approval"] != record.model_dump():
            refuse("settled", "the gate did not rule that this answer approves the request")
        if self._has_committed(proposal):
            refuse("committed", f"attempt {proposal.attempt} of this thread was committed before")
        self._use_nonce(record)
        row = [proposal.thread, digest, proposal.attempt, canonical_json(record.model_dump())]
        self._connection.execute(
            "INSERT OR REPLACE INTO commits VALUES (?, ?, ?, ?, ?)", (*row, seal(self._key, "commit", row))
        )
        self._log.append(proposal.thread, "committed", _log_body(record, proposal))

    def _has_committed(self, proposal: Proposal) -> bool:
        """Return whether the log tells of a commit of this attempt."""
        committed = self._log.find(proposal.thread, "committed")
        return any(entry.body["attempt"] == proposal.attempt for entry in committed)

    def _revoke(self, proposal: Proposal, answer: Any, reason: str) -> str | None:
        """Turn an approved request whose commit is refused into a refused one; return its interrupt."""
        try:
            interrupt_id, digest = self.requests.find_latest(proposal.thread)
            settled = self.requests.find_settled(interrupt_id)
        except NotApprovedError:
            return None
        if settled is None or settled["approval"] is None or settled["approval"] != answer:
            return None
        if digest != proposal.digest or self.is_committed(proposal):
            return None
        self.requests.settle(interrupt_id, make_refusal(reason))
        return interrupt_id

    def _log_refusal(self, proposal: Proposal, reason: str, interrupt_id: str | None) -> None:
        body = {"digest": proposal.digest, "reason": reason}
        if interrupt_id is not None:
            body["interrupt_id"] = interrupt_id
        self._log.append(proposal.thread, "refused", body)

    def _judge(self, interrupt_id: str, proposal: Proposal, answer: Any) -> Settled:
        shown = self.requests.require_open(interrupt_id)
        if (shown.thread, shown.digest) != (proposal.thread, proposal.digest):
            refuse("other_proposal", "the proposal is not the one that was displayed")
        record = self._verify(interrupt_id, proposal, answer)
        self._reviewers.require_registered(record.reviewer)
        self._reviewers.require_may_rule(record.reviewer, proposal)
        if record.decision == "approve":
            self._reviewers.require_second(record)
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
            now_s=self._log.now(),
        )

    def _committed_by(self, proposal: Proposal, record: ApprovalRecord) -> bool:
        try:
            return self.require_commit(proposal) == record
        except NotApprovedError:
            return False

    def _is_used(self, record: ApprovalRecord) -> bool:
        """Return whether the nonce was consumed; the log is read too, so a deleted row does not free it."""
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

"""The human gate: rulings on requests, commits, and everything that is done under a commit.

Nothing that the graph's state says is believed: the digest is computed again from the proposal, and whether
something is permitted is asked of the case's standing, a fold over the log that only the key's holder writes.
"""

from collections.abc import Callable, Sequence
from typing import Any

from roles.team import NO_OPTION
from simulator.governance.gate.approvals import (
    ApprovalRecord,
    NotApprovedError,
    PlanPart,
    Proposal,
    refuse,
    verify_approval,
)
from simulator.governance.gate.eligibility import Reviewers
from simulator.governance.gate.requests import Requests
from simulator.governance.gate.standing import Settled, Standing
from simulator.governance.store.database import Store, transaction
from simulator.governance.store.decision_log import DecisionLog

MAX_REPLANS = 3


class Gate:
    """Rulings and commits of one store."""

    def __init__(
        self, connection: Store, *, key: bytes, log: DecisionLog, requests: Requests, reviewers: Reviewers
    ) -> None:
        self._connection, self._key, self._log = connection, key, log
        self.requests, self._reviewers = requests, reviewers

    def stand(self, thread: str) -> Standing:
        """See Requests.stand."""
        return self.requests.stand(thread)

    def open_case(self, thread: str, case_key: str, horizon: int, seats: Sequence[str]) -> int:
        """Open a thread with its newest precedent; one that was opened before keeps its first, returned.

        Raises:
            ValueError: the thread is another case's.
        """
        with transaction(self._connection):
            opened = self.stand(thread).find("opened")
            if not opened:
                body = {"case": case_key, "horizon": horizon, "seats": list(seats)}
                self._log.append(thread, "opened", body)
                return horizon
        if opened[0].body["case"] != case_key:
            raise ValueError(f"thread {thread!r} is of case {opened[0].body['case']!r}, not {case_key!r}")
        return int(opened[0].body["horizon"])

    def settle(self, interrupt_id: str, proposal: Proposal, answer: Any) -> Settled:
        """Judge an answer to a request, once: whatever comes later gets the first judgement."""
        with transaction(self._connection, durable=True):
            standing = self.stand(proposal.thread)
            if standing.find_ruling(interrupt_id) is None:
                try:
                    self._judge(standing, interrupt_id, proposal, answer)
                except NotApprovedError as error:
                    self._log_refusal(proposal, error.reason, interrupt_id)
            settled = self.stand(proposal.thread).find_settled(interrupt_id)
        assert settled is not None
        return settled

    def commit(self, proposal: Proposal) -> str:
        """Permit exactly this proposal to be carried out, or refuse it; return "" or the reason.

        It must be the latest that was displayed, and approved. The plan in force can be committed again.
        A refusal is logged in the same transaction, and it is final for a request that was approved.
        """
        with transaction(self._connection, durable=True):
            standing, interrupt_id = self.stand(proposal.thread), None
            try:
                if standing.is_in_force(proposal.digest):
                    return ""
                approved = self._find_approval(standing, proposal)
                interrupt_id = str(approved["interrupt_id"])
                self._commit(standing, proposal, approved)
            except NotApprovedError as error:
                self._log_refusal(proposal, error.reason, interrupt_id)
                return error.reason
            return ""

    def require_in_force(self, proposal: Proposal) -> Standing:
        """Return how the case stands, if exactly this proposal is the plan in force and the case is open.

        Raises:
            NotApprovedError: "not_committed", "superseded" or "closed".
        """
        standing = self.stand(proposal.thread)
        if not any(one.body["digest"] == proposal.digest for one in standing.find("committed")):
            refuse("not_committed", f"the proposal of thread {proposal.thread!r} was never committed")
        if not standing.is_in_force(proposal.digest):
            refuse("superseded", "a later plan is in force, or the case is planned anew")
        standing.require_unclosed()
        return standing

    def deliver(self, proposal: Proposal, part: PlanPart) -> None:
        """Carry out one part of the plan in force; a part that was carried out is not carried out again.

        Raises:
            NotApprovedError: not in force, not a part of it, or the case is closed.
        """
        with transaction(self._connection):
            if part not in proposal.parts:
                refuse("no_part", f"{part.role} has no such part in the proposal")
            if part.role not in self.stand(proposal.thread).list_executed(proposal.digest):
                self.require_in_force(proposal)
                body = {"digest": proposal.digest, "role": part.role, "action": part.action}
                self._log.append(proposal.thread, "executed", body)

    def observe(self, proposal: Proposal, look: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return what was observed of a plan; log it when the plan in force is looked at first.

        Raises:
            NotApprovedError: not in force, closed, or "not_executed".
        """
        with transaction(self._connection):
            known = self.stand(proposal.thread).find_observed(proposal.digest)
            if known is not None:
                return known
            done = self.require_in_force(proposal).list_executed(proposal.digest)
            if set(done) != {part.role for part in proposal.parts}:
                refuse("not_executed", "parts of the plan were not carried out")
            body = {"digest": proposal.digest, **look()}
            self._log.append(proposal.thread, "observed", body)
            return body

    def replan(self, proposal: Proposal, told: dict[str, Any]) -> None:
        """Open the case again, once, after an alert on the plan in force.

        Raises:
            NotApprovedError: not in force, closed, "no_alert" or "no_replan_left".
        """
        with transaction(self._connection):
            if self.stand(proposal.thread).has_replanned(proposal.digest):
                return
            standing = self.require_in_force(proposal)
            if not (standing.find_observed(proposal.digest) or {}).get("alerts"):
                refuse("no_alert", "monitoring raised no alert on the plan in force")
            if standing.attempt >= MAX_REPLANS:
                refuse("no_replan_left", f"the case was planned anew {MAX_REPLANS} times")
            self._log.append(proposal.thread, "replanned", {"digest": proposal.digest, **told})

    def close(self, proposal: Proposal) -> str:
        """Close the case over the latest displayed plan; return its status, of a closed one the one it has.

        completed, completed_with_alerts, handed_over (in force, but no part to do) or not_approved.

        Raises:
            NotApprovedError: "superseded" by a later plan, or "waits" for a ruling.
        """
        with transaction(self._connection):
            standing = self.stand(proposal.thread)
            if standing.status is not None:
                return standing.status
            latest = standing.require_latest().body
            if latest["digest"] != proposal.digest:
                refuse("superseded", "a case is closed with the plan that was displayed last")
            if standing.find_ruling(latest["interrupt_id"]) is None:
                refuse("waits", "the case waits for a ruling on its latest plan")
            status = _find_status(standing, proposal)
            self._log.append(proposal.thread, "closed", {"digest": proposal.digest, "status": status})
            return status

    def read_status(self, thread: str) -> str:
        """Return the status with which the case was closed.

        Raises:
            NotApprovedError: "tampered": it was not closed, or the log was changed.
        """
        status = self.stand(thread).status
        if status is None:
            refuse("tampered", f"thread {thread!r} has ended, but its case was never closed")
        return status

    def _find_approval(self, standing: Standing, proposal: Proposal) -> dict[str, Any]:
        """Return the ruling that approves the latest request, if that displayed this proposal."""
        standing.require_unclosed()
        latest = standing.require_latest().body
        if latest["digest"] != proposal.digest:
            refuse("other_proposal", "the latest request displayed another proposal")
        ruled = standing.find_ruling(latest["interrupt_id"])
        if ruled is None or ruled.kind != "approved":
            refuse("settled", "the gate did not rule that the request is approved")
        return ruled.body

    def _commit(self, standing: Standing, proposal: Proposal, approved: dict[str, Any]) -> None:
        record = self._verify(approved["interrupt_id"], proposal, approved["record"])
        self._require_approvers(standing, proposal, record)
        if proposal.attempt != standing.attempt or standing.in_force is not None:
            refuse("committed", f"attempt {proposal.attempt} is not to be committed now")
        self._log.append(proposal.thread, "committed", _log_body(record, proposal))

    def _log_refusal(self, proposal: Proposal, reason: str, interrupt_id: str | None) -> None:
        body = {"digest": proposal.digest, "reason": reason}
        if interrupt_id is not None:
            body["interrupt_id"] = interrupt_id
        self._log.append(proposal.thread, "refused", body)

    def _judge(self, standing: Standing, interrupt_id: str, proposal: Proposal, answer: Any) -> None:
        shown = self.requests.require_open(interrupt_id)
        if (shown.thread, shown.digest) != (proposal.thread, proposal.digest):
            refuse("other_proposal", "the proposal is not the one that was displayed")
        record = self._verify(interrupt_id, proposal, answer)
        if record.nonce in standing.list_used():
            refuse("used", "the approval was used before")
        self._reviewers.require_may_rule(record.reviewer, standing, proposal)
        body = _log_body(record, proposal)
        if record.decision == "approve":
            self._require_approvers(standing, proposal, record)
            self._log.append(proposal.thread, "approved", {**body, "record": record.model_dump()})
        elif record.decision == "reject":
            self._log.append(proposal.thread, "rejected", {**body, "to": None, "feedback": record.feedback})
        else:
            options = {NO_OPTION: True} | {one.option: one.worth is not None for one in proposal.options}
            if not options.get(str(record.option)):
                refuse(
                    "cannot_be_run" if record.option in options else "unknown_option",
                    f"option {record.option!r} cannot take the place of {proposal.option!r}",
                )
            self._log.append(proposal.thread, "edited", {**body, "to": record.option, "feedback": ""})

    def _require_approvers(self, standing: Standing, proposal: Proposal, record: ApprovalRecord) -> None:
        """Refuse unless every approval of the request holds now, of people who may rule on it now."""
        kept = [
            self._verify(record.interrupt_id, proposal, one)
            for one in standing.list_answers(record.interrupt_id)
            if one["decision"] == "approve" and one["nonce"] != record.nonce
        ]
        approvals = [*kept, record]
        for one in approvals:
            self._reviewers.require_may_rule(one.reviewer, standing, proposal)
        self._reviewers.require_eyes([one.reviewer for one in approvals])

    def _verify(self, interrupt_id: str, proposal: Proposal, answer: Any) -> ApprovalRecord:
        return verify_approval(
            answer,
            key=self._key,
            thread=proposal.thread,
            interrupt_id=interrupt_id,
            digest=proposal.digest,
            now_s=self._log.now(),
        )


def _find_status(standing: Standing, proposal: Proposal) -> str:
    """Return the status of a case that ends with this plan. See `Gate.close`."""
    done = set(standing.list_executed(proposal.digest)) == {part.role for part in proposal.parts}
    if not standing.is_in_force(proposal.digest) or not done:
        return "not_approved"
    if not proposal.parts:
        return "handed_over"
    observed = standing.find_observed(proposal.digest)
    return "completed_with_alerts" if observed is None or observed["alerts"] else "completed"


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

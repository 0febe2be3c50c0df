"""Signs reviewers' answers to open requests; on the reviewers' side it alone holds the key.

A web reviewer lists the open requests, shows one, and submits an answer to the digest that was shown; the
waiting case goes on when it is played again. Answers are kept, so that none is lost in a crash.
"""

from collections.abc import Callable
from typing import Any

from simulator.governance.gate.approvals import (
    ApprovalRecord,
    NotApprovedError,
    ReviewResponse,
    draw_nonce,
    issue_approval,
    refuse,
)
from simulator.governance.gate.eligibility import SIMULATED, TERMINAL, Reviewers
from simulator.governance.gate.request_form import ReviewRequest
from simulator.governance.gate.requests import Requests
from simulator.governance.gate.reviewers import Reviewer
from simulator.governance.store.database import Store, canonical_json, read_json, transaction
from simulator.governance.store.decision_log import DecisionLog

LIFETIME_S = 24 * 3600


class ReviewDesk:
    """Signs answers to open requests of one store."""

    def __init__(
        self,
        connection: Store,
        *,
        key: bytes,
        log: DecisionLog,
        requests: Requests,
        reviewers: Reviewers,
        lifetime_s: int = LIFETIME_S,
        nonce: Callable[[], str] = draw_nonce,
    ) -> None:
        self._connection, self._key, self._log = connection, key, log
        self._requests, self.reviewers = requests, reviewers
        self._lifetime_s, self._nonce = lifetime_s, nonce

    def list_open(self) -> list[ReviewRequest]:
        """List the requests that can be answered, oldest first: none that was settled, superseded or closed.

        One that was changed on disk is left out; it ends its episode when that is played.
        """
        rows = self._connection.execute(
            "SELECT interrupt_id FROM requests AS r WHERE settled IS NULL"
            " AND sequence = (SELECT max(sequence) FROM requests WHERE thread = r.thread)"
            " AND NOT EXISTS (SELECT 1 FROM answers AS a WHERE a.interrupt_id = r.interrupt_id)"
            " ORDER BY sequence"
        ).fetchall()
        shown = [self._find_open(interrupt_id) for (interrupt_id,) in rows]
        return [request for request in shown if request is not None]

    def _find_open(self, interrupt_id: str) -> ReviewRequest | None:
        """Return the request as it was shown first; None where it cannot be ruled on."""
        try:
            return ReviewRequest.model_validate(self._requests.require_open(interrupt_id).body)
        except NotApprovedError:
            return None

    def submit(
        self, interrupt_id: str, digest_shown: str, response: ReviewResponse, reviewer: str
    ) -> ApprovalRecord:
        """Sign and keep the answer to a request, on disk when this returns; the first answer stays.

        Where four eyes are wanted, the request stays open after a first approval.

        Raises:
            NotApprovedError: "unknown", "forged", "closed", "superseded", "settled", "answered",
                "unregistered", "nameless", "self_approval" or "awaits_person" (see `Reviewers`), or
                "other_proposal" where the digest shown is not the displayed one.
        """
        if reviewer in (SIMULATED, TERMINAL):
            refuse("unregistered", f"{reviewer!r} answers where a case is played; give a registered name")
        record = self._keep(interrupt_id, digest_shown, response, reviewer)
        self._connection.commit_now()
        return record

    def _keep(
        self, interrupt_id: str, digest_shown: str, response: ReviewResponse, reviewer: str
    ) -> ApprovalRecord:
        with transaction(self._connection, durable=True):
            shown = self._requests.require_open(interrupt_id)
            request = ReviewRequest.model_validate(shown.body)
            if not digest_shown == request.digest == request.proposal.digest == shown.digest:
                refuse("other_proposal", "the proposal shown is not the one that was requested")
            self.reviewers.require_registered(reviewer)
            self.reviewers.require_may_rule(reviewer, request.proposal)
            if self.find_answer(interrupt_id) is not None:
                refuse("answered", "the request has been answered")
            record = issue_approval(
                response,
                key=self._key,
                thread=request.thread,
                interrupt_id=interrupt_id,
                proposal_digest=request.digest,
                reviewer=reviewer,
                now_s=self._log.now(),
                lifetime_s=self._lifetime_s,
                nonce=self._nonce(),
            )
            if self.reviewers.keep_first(record):
                return record
            self._connection.execute(
                "INSERT INTO answers VALUES (?, ?)", (interrupt_id, canonical_json(record.model_dump()))
            )
        return record

    def find_answer(self, interrupt_id: str) -> dict[str, Any] | None:
        """Return the kept answer, as the gate is to judge it; {} for a damaged one, None without one."""
        row = self._connection.execute(
            "SELECT record FROM answers WHERE interrupt_id = ?", (interrupt_id,)
        ).fetchone()
        if row is None:
            return None
        answer = read_json(row[0])
        return answer if isinstance(answer, dict) else {}

    async def ask(self, request: ReviewRequest, reviewer: Reviewer) -> dict[str, Any] | None:
        """Return the kept answer, or ask the reviewer and sign the answer; None where there is none yet.

        The reviewer is shown the request under the gate's seal, not the copy that the graph's state carries.
        The simulated reviewer is not asked in a thread in which a person was.
        """
        known = self.find_answer(request.interrupt_id)
        if known is not None:
            return known
        request = ReviewRequest.model_validate(self._requests.require_open(request.interrupt_id).body)
        if reviewer.name != SIMULATED:
            self.reviewers.note_asked(request.thread, request.interrupt_id, request.digest, reviewer.name)
            await self._connection.committed()
        elif self.reviewers.awaits_person(request.thread):
            return None
        response = await reviewer.review(request)
        if response is None:  # it may have been answered elsewhere meanwhile
            return self.find_answer(request.interrupt_id)
        try:
            self._keep(request.interrupt_id, request.digest, response, reviewer.name)
            await self._connection.committed()
        except NotApprovedError as error:
            if error.reason not in ("answered", "one_pair_of_eyes"):
                raise
        return self.find_answer(request.interrupt_id)

"""Where reviewers' words become signed records: the only holder of the key on the people's side.

A web reviewer lists the open requests, shows one, and submits an answer to the digest that was shown; the
waiting case goes on when it is played again. Answers are kept, so that none is lost in a crash.
"""

import json
from collections.abc import Callable
from typing import Any

from simulator.governance.gate.approvals import (
    ApprovalRecord,
    Clock,
    NotApprovedError,
    ReviewResponse,
    draw_nonce,
    issue_approval,
    refuse,
)
from simulator.governance.gate.reviewers import Reviewer, ReviewRequest
from simulator.governance.store.database import Store, canonical_json, transaction

LIFETIME_S = 24 * 3600


class ReviewDesk:
    """Signs answers to open requests of one store."""

    def __init__(
        self,
        connection: Store,
        *,
        key: bytes,
        clock: Clock,
        lifetime_s: int = LIFETIME_S,
        nonce: Callable[[], str] = draw_nonce,
    ) -> None:
        self._connection, self._key, self._clock = connection, key, clock
        self._lifetime_s, self._nonce = lifetime_s, nonce

    def list_open(self) -> list[ReviewRequest]:
        """The latest request of every thread, where it is neither settled nor answered; oldest first."""
        rows = self._connection.execute(
            "SELECT body FROM requests AS r WHERE settled IS NULL"
            " AND sequence = (SELECT max(sequence) FROM requests WHERE thread = r.thread)"
            " AND NOT EXISTS (SELECT 1 FROM answers AS a WHERE a.interrupt_id = r.interrupt_id)"
            " ORDER BY sequence"
        )
        return [ReviewRequest.model_validate(json.loads(body)) for (body,) in rows.fetchall()]

    def submit(
        self, interrupt_id: str, digest_shown: str, response: ReviewResponse, reviewer: str
    ) -> ApprovalRecord:
        """Sign and keep the answer to a request, on disk when this returns; the first answer stays.

        Raises:
            NotApprovedError: "unknown", "answered", or "other_proposal" where the digest shown is not the
                displayed one.
        """
        record = self._keep(interrupt_id, digest_shown, response, reviewer)
        self._connection.commit_now()
        return record

    def _keep(
        self, interrupt_id: str, digest_shown: str, response: ReviewResponse, reviewer: str
    ) -> ApprovalRecord:
        with transaction(self._connection, durable=True):
            row = self._connection.execute(
                "SELECT body, digest FROM requests WHERE interrupt_id = ?", (interrupt_id,)
            ).fetchone()
            if row is None:
                refuse("unknown", "there is no such request")
            request = ReviewRequest.model_validate(json.loads(row[0]))
            if not digest_shown == request.digest == request.proposal.digest == row[1]:
                refuse("other_proposal", "the proposal shown is not the one that was requested")
            if self.find_answer(interrupt_id) is not None:
                refuse("answered", "the request has been answered")
            record = issue_approval(
                response,
                key=self._key,
                thread=request.thread,
                interrupt_id=interrupt_id,
                proposal_digest=request.digest,
                reviewer=reviewer,
                now_s=self._clock(),
                lifetime_s=self._lifetime_s,
                nonce=self._nonce(),
            )
            self._connection.execute(
                "INSERT INTO answers VALUES (?, ?)", (interrupt_id, canonical_json(record.model_dump()))
            )
        return record

    def find_answer(self, interrupt_id: str) -> dict[str, Any] | None:
        """The kept answer, as the gate is to judge it; None without one."""
        row = self._connection.execute(
            "SELECT record FROM answers WHERE interrupt_id = ?", (interrupt_id,)
        ).fetchone()
        return None if row is None else json.loads(row[0])

    async def ask(self, request: ReviewRequest, reviewer: Reviewer) -> dict[str, Any] | None:
        """The kept answer, or the reviewer's, signed; None where the reviewer has none yet."""
        known = self.find_answer(request.interrupt_id)
        if known is not None:
            return known
        response = await reviewer.review(request)
        if response is None:
            return None
        try:
            record = self._keep(request.interrupt_id, request.digest, response, reviewer.name)
            await self._connection.committed()
        except NotApprovedError as error:
            if error.reason != "answered":
                raise
            return self.find_answer(request.interrupt_id)
        return record.model_dump()

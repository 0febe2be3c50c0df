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
from simulator.governance.gate.standing import Standing
from simulator.governance.store.database import Store, transaction
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
        """List the requests that can be answered: none that was settled, answered, superseded or closed.

        One whose copy on disk was changed is left out; it ends its episode when that is played.
        """
        found = [self.find_open(thread) for thread in self._requests.list_threads()]
        return [request for request in found if request is not None]

    def find_open(self, thread: str) -> ReviewRequest | None:
        """Return the request of this thread as it was shown first; None where none can be answered."""
        try:
            standing = self._requests.stand(thread)
            interrupt_id = str(standing.require_latest().body["interrupt_id"])
            if self._find_answer(standing, interrupt_id) is not None:
                return None
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
                "unregistered", "self_approval", "awaits_person" or "one_pair_of_eyes" (see `Reviewers`), or
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
            standing = self._requests.stand(shown.thread)
            self.reviewers.require_may_rule(reviewer, standing, request.proposal)
            if self._find_answer(standing, interrupt_id) is not None:
                refuse("answered", "the request has been answered")
            before = [one["reviewer"] for one in standing.list_answers(interrupt_id)]
            if before and response.decision == "approve":
                self.reviewers.require_eyes([*before, reviewer])
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
            told = {"decision": record.decision, "reviewer": reviewer, "record": record.model_dump()}
            body = {"digest": request.digest, "interrupt_id": interrupt_id, **told}
            self._log.append(request.thread, "answered", body)
        return record

    def find_answer(self, interrupt_id: str) -> dict[str, Any] | None:
        """Return the kept answer, as the gate is to judge it; None while there is none."""
        standing = self._requests.find_standing(interrupt_id)
        return None if standing is None else self._find_answer(standing, interrupt_id)

    def find_first(self, interrupt_id: str) -> str | None:
        """Return who gave the first of two approvals of a request; None while nobody did."""
        standing = self._requests.find_standing(interrupt_id)
        answers = [] if standing is None else standing.list_answers(interrupt_id)
        return str(answers[0]["reviewer"]) if answers else None

    def _find_answer(self, standing: Standing, interrupt_id: str) -> dict[str, Any] | None:
        """Return the answer with which there are enough: a first of two approvals waits for another."""
        answers = standing.list_answers(interrupt_id)
        is_enough = len(answers) > self.reviewers.wants_four_eyes()
        return answers[-1] if answers and (is_enough or answers[-1]["decision"] != "approve") else None

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

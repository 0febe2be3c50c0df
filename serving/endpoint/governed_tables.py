"""Governed cases behind the endpoint: each goes as far as the human gate lets it, and on after a restart.

The gate is the governance's own. A ruling is kept only for a registered reviewer who shows a token of their
own: whoever may call the endpoint may not rule by that alone.
"""

import asyncio
import hmac
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, ValidationError

from evaluation.minutes.minutes import render_governed
from roles.errors import UserError
from scenarios.written.written_case import FreeCase
from serving.endpoint.tables import Tables, Tell
from simulator.governance.outcomes import FreeOutcomes
from simulator.governance.proposal import ReviewRequest, ReviewResponse, Ruling
from simulator.governance.record import read_record
from simulator.governance.reviewers import AbsentReviewer
from simulator.governance.runner import WAITING, GovernanceServices, GovernedEpisode, play_governed
from simulator.governance.seals import NotApprovedError

ROUNDS = 2  # of votes on one draft
CLOSED = ("completed", "completed_with_alerts", "handed_over", "not_approved")


class RulingMessage(BaseModel):
    """A reviewer's answer as it comes in a message; the reviewer's token comes apart from it.

    Example: RulingMessage(interrupt_id="9f2c", digest="4f...", reviewer="ann", decision="approve")
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    interrupt_id: str  # of the request that was shown
    digest: str  # of the proposal that was shown
    reviewer: str
    decision: Ruling
    option: str | None = None  # with edit
    feedback: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GovernedPlay:
    """Progress of a governed case.

    Example: (await governed.play("t1", case)).status == "waiting"
    """

    status: str  # see GovernedEpisode.status
    minutes: str
    request: ReviewRequest | None  # what a person is asked; None unless it waits
    error: str | None

    @property
    def is_closed(self) -> bool:
        """Tell whether nothing will be done in it any more."""
        return self.status in CLOSED


class GovernedTables:
    """The team's governed cases in one store.

    Example: await GovernedTables(tables, services, {}).play("t1", case)
    """

    def __init__(self, tables: Tables, services: GovernanceServices, reviewers: Mapping[str, str]) -> None:
        """`reviewers`: the token of each person who may rule here; each is registered in the store.

        Raises:
            UserError: a name that cannot rule.
        """
        self._tables, self._services, self._tokens = tables, services, dict(reviewers)
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        for name in reviewers:
            try:
                services.reviewers.register(name)
            except NotApprovedError as error:
                raise UserError(f"reviewer {name!r}: {error}") from None

    async def play(self, task: str, case: FreeCase, tell: Tell | None = None) -> GovernedPlay:
        """Play the task's case from where it is as far as the gate lets it.

        Raises:
            BusyError: the queue is full.
            UserError: the store was changed.
        """
        async with self._locks[task], self._tables.place("governed"):
            seating = self._tables.make_seating(self._name_stream(task), tell)
            (played,) = await play_governed(
                [self._tables.settle(case)],
                self._services,
                seating,
                AbsentReviewer(),
                lambda one: FreeOutcomes(one, seed=0),
                rounds=ROUNDS,
                concurrency=1,
            )
            record = read_record(case, played, self._services, stream=seating.stream)
            request = self._find_request(played) if played.status == WAITING else None
            return GovernedPlay(
                status=played.status, minutes=render_governed(record), request=request, error=played.error
            )

    def keep_ruling(self, task: str, case: FreeCase, message: object, token: str | None) -> None:
        """Sign and keep a reviewer's answer to the task's open request.

        Raises:
            UserError: no ruling, no reviewer's own token, or one that the gate refuses; nothing is kept.
        """
        try:
            ruling = RulingMessage.model_validate(message)
            response = ReviewResponse(
                decision=ruling.decision, option=ruling.option, feedback=ruling.feedback
            )
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise UserError(
                f"ruling: {'.'.join(map(str, first['loc'])) or 'message'}: {first['msg']}"
            ) from None
        known = self._tokens.get(ruling.reviewer)
        if known is None or token is None or not hmac.compare_digest(known.encode(), token.encode()):
            raise UserError("ruling: no reviewer of this name and token; a person rules, not the caller")
        request = self._find_open(self._name_thread(task, case))
        if request is None or request.interrupt_id != ruling.interrupt_id:
            raise UserError("ruling: this request is not open in this task")
        try:
            self._services.gate.submit(ruling.interrupt_id, ruling.digest, response, ruling.reviewer)
        except NotApprovedError as error:
            raise UserError(f"ruling: {error.reason}: {error}") from None

    def is_answered(self, interrupt_id: str) -> bool:
        """Tell whether a person has ruled on the request, here or elsewhere on the same store."""
        return self._services.gate.find_answer(interrupt_id) is not None

    def _find_request(self, played: GovernedEpisode) -> ReviewRequest | None:
        return self._find_open(played.thread)

    def _find_open(self, thread: str) -> ReviewRequest | None:
        return self._services.gate.find_open(thread)

    def _name_stream(self, task: str) -> str:
        return f"{self._tables.team.stream}/serve/{task}"

    def _name_thread(self, task: str, case: FreeCase) -> str:
        return f"{self._name_stream(task)}/{case.key}"

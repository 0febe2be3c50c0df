"""Reviewers at the gate: a simulated one, an absent one, and people in the browser.

A reviewer only says what it thinks of what it is shown; the gate keeps the answer.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Protocol

from roles.errors import UserError
from roles.team import NO_OPTION
from simulator.governance.gate import SIMULATED, WEB
from simulator.governance.proposal import ReviewRequest, ReviewResponse

POLL_S = 0.1  # between two looks for an answer of the web app


class Reviewer(Protocol):
    """A reviewer of proposals. Its name is "simulated" or that of a person registered in the store."""

    name: str

    async def review(self, request: ReviewRequest) -> ReviewResponse | None:
        """Answer the request; None where there is no answer yet, and the case waits."""


class AbsentReviewer:
    """A reviewer that never answers: each case waits until the gate holds an answer from the browser."""

    name = "absent"

    async def review(self, request: ReviewRequest) -> ReviewResponse | None:
        return None


class WebReviewer:
    """Waits until people have answered a request in the browser; the gate then finds their answer.

    It signs nothing: the web app hands answers to the gate of its own process, on the same store.
    """

    name = WEB

    def __init__(self, find_answer: Callable[[str], object | None]) -> None:
        """`find_answer` looks an answer up in the store, by interrupt."""
        self._find_answer = find_answer

    async def review(self, request: ReviewRequest) -> ReviewResponse | None:
        """Return None once the store holds an answer."""
        while self._find_answer(request.interrupt_id) is None:
            await asyncio.sleep(POLL_S)
        return None


class SimulatedReviewer:
    """A scored policy with a stated error rate.

    It scores the proposed plan and the best plan of every other option, approves a proposal that comes close
    enough to the best of them, sends a worse one back, and edits an escalation into the best option where
    one can be run. With probability `error_rate`, drawn from seed and plan, it does the opposite: approves
    what it should send back, and the other way round.
    """

    name = SIMULATED

    def __init__(
        self,
        score: Callable[[ReviewRequest, str], float],
        *,
        error_rate: float = 0.0,
        seed: int = 0,
        least_share: float = 1.0,
    ) -> None:
        """`score` values an option's plan ("none": handing the case on), the greater the better.

        Raises:
            UserError: error_rate or least_share outside [0, 1].
        """
        for name, value in (("error_rate", error_rate), ("least_share", least_share)):
            if not 0 <= value <= 1:
                raise UserError(f"{name} must be 0 to 1, got {value}")
        self._score, self._error_rate, self._seed = score, error_rate, seed
        self._least_share = least_share  # of the best score that a proposal must reach

    async def review(self, request: ReviewRequest) -> ReviewResponse:
        rng = random.Random(f"reviewer/{self._seed}/{request.proposal.plan_digest}")
        options = [line.option for line in request.proposal.options if line.worth is not None]
        scores = {option: self._score(request, option) for option in (*options, NO_OPTION)}
        best = max(scores, key=scores.__getitem__)  # of those that can be run
        proposed = scores.get(request.proposal.option, scores[NO_OPTION])
        is_sound = proposed >= self._least_share * scores[best]
        if is_sound != (rng.random() < self._error_rate):
            return ReviewResponse(decision="approve")
        if request.proposal.option == NO_OPTION and best != NO_OPTION:
            return ReviewResponse(decision="edit", option=best)
        return ReviewResponse(decision="reject", feedback=f"{request.proposal.option} does not convince.")


def score_by_worth(request: ReviewRequest, option: str) -> float:
    """Score an option without the truth: k$ of its plan by the reports, 0 for handing the case on.

    The proposed option counts with the plan that is proposed, another one with its best plan.
    """
    proposal = request.proposal
    if option == NO_OPTION:
        return 0.0
    if option == proposal.option:
        return float(proposal.worth)
    return float(next((line.worth or 0 for line in proposal.options if line.option == option), 0))

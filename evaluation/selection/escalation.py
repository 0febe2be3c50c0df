"""Escalation by cost: a case goes to people where its expected error costs more than a review.

The chance of an error is that of the verified cases nearest in uncertainty, so it is only as good as these.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from evaluation.selection.ways import Candidate, Verified

NEAREST = 20  # verified cases that the chance is taken from


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewCosts:
    """Costs in one unit of any kind. Example: ReviewCosts(review=1.0, missed_error=8.0)"""

    review: float  # of one case, more than 0
    missed_error: float  # of an error that nobody sees

    @property
    def least_chance(self) -> float:
        """Return the chance of an error from which on a review pays."""
        return self.review / self.missed_error


def estimate_error(candidate: Candidate, history: Sequence[Verified]) -> float:
    """Return the chance of an error: (errors + 1) / (cases + 2) of the nearest verified cases.

    Without any it is 1/2, so that at the start people see what they are there for.
    """
    nearest = sorted(history, key=lambda one: abs(one.uncertainty - candidate.uncertainty))[:NEAREST]
    return (sum(one.is_error for one in nearest) + 1) / (len(nearest) + 2)


def choose_escalated(
    candidates: Sequence[Candidate], history: Sequence[Verified], costs: ReviewCosts
) -> list[Candidate]:
    """Return the cases that people should see, in the given order."""
    return [one for one in candidates if estimate_error(one, history) > costs.least_chance]

"""What the team's seats write in a joint episode: report, decision, vote."""

from typing import Annotated, Literal

from pydantic import Field

from roles.base import Answer

SPECIALISTS: tuple[str, ...] = ("cto", "coo", "risk", "cost")
RECONCILER = "reconcile"
TEAM_ROLES: tuple[str, ...] = (*SPECIALISTS, RECONCILER)  # who plays generated cases; other roles work alone
NO_OPTION = "none"  # the decision's option when the case goes to a human


class SpecialistReport(Answer):
    """A specialist's executive summary: all that ReconcileGPT learns from it.

    Example: SpecialistReport(pick="B", flag=1, veto=["C"])
    """

    pick: str  # the option it recommends
    flag: Annotated[int, Field(ge=0, le=3)]  # how much it presses for it
    veto: list[str]  # options that break its hard limit


class Decision(Answer):
    """ReconcileGPT's decision for the team.

    Example: Decision(option="B", escalate=False)
    """

    option: str  # an option, or "none" when it escalates
    escalate: bool  # hand the case to a human


class Vote(Answer):
    """A specialist's answer to the decision.

    Example: Vote(vote="accept")
    """

    vote: Literal["accept", "object"]

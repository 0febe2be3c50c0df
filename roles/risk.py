"""Chief Risk Officer: names what is most exposed and buys the controls that leave the least loss."""

from typing import Annotated

from pydantic import Field

from roles.base import Answer, Role, Tool


class RiskAnswer(Answer):
    """What the Risk role answers.

    Example: RiskAnswer(top_risks=["C", "A"], controls=["K1", "K3"], residual=34, score=4)
    """

    top_risks: Annotated[list[str], Field(min_length=2, max_length=2)]  # most exposed assets, worst first
    controls: list[str]  # bought within the budget, each once
    residual: int  # exact loss left with these controls
    score: int  # 0 to 12, as the residual tool reports it


EXPOSURES = Tool(
    name="exposures",
    description="Exact exposure of every asset before controls.",
    parameters={"type": "object", "properties": {}, "additionalProperties": False},
)
SAVINGS = Tool(
    name="savings",
    description="Loss that each control alone avoids.",
    parameters={"type": "object", "properties": {}, "additionalProperties": False},
)
RESIDUAL = Tool(
    name="residual",
    description="Exact residual loss, cost and risk score of a set of controls.",
    parameters={
        "type": "object",
        "properties": {
            "controls": {"type": "array", "items": {"type": "string"}, "description": "controls, each once"}
        },
        "required": ["controls"],
        "additionalProperties": False,
    },
)

ROLE = Role(
    name="risk",
    title="Risk",
    mandate=(
        "You are the Chief Risk Officer. Threats reach assets step by step; a control makes one step less "
        "likely. Name the two assets most exposed before controls, choose the controls within the budget "
        "that leave the smallest residual loss (savings may overlap); report that loss and its score 0-12."
    ),
    answer=RiskAnswer,
    tools=(EXPOSURES, SAVINGS, RESIDUAL),
    letter="R",
)

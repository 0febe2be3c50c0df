"""Chief Financial Officer (Cost): the cheapest tier of every item that keeps the quality floor."""

from roles.base import Answer, Role, Tool


class CostAnswer(Answer):
    """What the Cost role answers.

    Example: CostAnswer(tiers={"S1": 2, "S2": 1, "S3": 3}, total=61)
    """

    tiers: dict[str, int]  # every item of the brief -> tier 1 to 3
    total: int  # exact price of this plan, k$


PRICE = Tool(
    name="price",
    description="Exact total and quality of a plan, discounts included.",
    parameters={
        "type": "object",
        "properties": {
            "tiers": {
                "type": "object",
                "description": "every item of the brief and its tier",
                "additionalProperties": {"type": "integer", "minimum": 1, "maximum": 3},
            }
        },
        "required": ["tiers"],
        "additionalProperties": False,
    },
)

ROLE = Role(
    name="cost",
    title="Cost",
    mandate=(
        "You are the cost controller. Choose one tier of every item so that the qualities add up to at least "
        "the quality floor, the total stays within the budget if there is one, and the total is as low as "
        "possible; mind the volume discount where the brief states one. Report the tiers and the exact total."
    ),
    answer=CostAnswer,
    tools=(PRICE,),
    letter="C",
)

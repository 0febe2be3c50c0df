"""The Cost Officer: which commitments and tiers of an option's price list are worth their money."""

from roles.base import Role
from roles.part import TOOLS, PartAnswer, write_mandate

RULES = (
    "Of every item you may buy one tier, or none. A committed tier takes its percentage off the item's "
    "list price; what is saved per item is rounded down to whole k$. A premium tier adds its points to the "
    "quality; quality is the sum over the items. Saving is worth its own amount. Quality points over the "
    "ceiling are worth nothing. Bundle: when the number of committed tiers that you buy reaches the number "
    "stated, each of them costs the discount less; the same holds for premium tiers, counted by themselves."
)

EXAMPLE = {"part": ["committed lamp oil", "premium rope"], "cost": 10, "worth": 19}

ROLE = Role(
    name="cost",
    title="Cost",
    mandate=write_mandate("Cost Officer", "price list", RULES, EXAMPLE),
    answer=PartAnswer,
    tools=TOOLS,
    letter="C",
)

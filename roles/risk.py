"""The Chief Risk Officer: which controls against the threats to an option are worth their money."""

from roles.base import Role
from roles.part import TOOLS, PartAnswer, write_mandate

RULES = (
    "One serious attempt a month is expected. It starts outside. An asset is reached when the attempt "
    "stands at the asset (or outside) named after 'from' and all steps of at least one of the routes "
    "succeed; steps succeed independently, each with the likelihood stated. The expected loss of an asset "
    "is its loss times the probability that it is reached, rounded down to whole k$; the expected loss of "
    "the whole is the sum over the assets. A control lowers the likelihood of one step to the figure "
    "stated. Avoided expected loss is worth its own amount."
)

EXAMPLE = {"part": ["storm shutters", "lamp watch"], "cost": 11, "worth": 25}

ROLE = Role(
    name="risk",
    title="Risk",
    mandate=write_mandate("Chief Risk Officer", "threat graph", RULES, EXAMPLE),
    answer=PartAnswer,
    tools=TOOLS,
    letter="R",
)

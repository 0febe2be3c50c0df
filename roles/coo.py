"""The COO: which overtime, shifts and contractors are worth their money on an option's work plan."""

from roles.base import Role
from roles.part import TOOLS, PartAnswer, write_mandate

RULES = (
    "Work begins with day 1, and the finish is the last day of the last package. Packages are taken in the "
    "order listed. A package starts as soon as the packages that it comes after are done and its owner has "
    "finished the owner's earlier packages in the list; it runs without a break. Overtime of a person "
    "makes each package of that person take a fifth less time, rounded up to whole days. An extra shift "
    "takes the days stated off one package, after overtime. A contractor takes over one package and needs "
    "the days stated: the owner is not occupied by it, and neither overtime nor an extra shift changes it. "
    "A package never takes less than one day."
)

EXAMPLE = {"part": ["overtime Wilma", "extra shift lens grinding"], "cost": 12, "worth": 18}

ROLE = Role(
    name="coo",
    title="COO",
    mandate=write_mandate("COO", "work plan", RULES, EXAMPLE),
    answer=PartAnswer,
    tools=TOOLS,
    letter="O",
)

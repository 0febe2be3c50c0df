"""The CTO: which upgrades of an option's architecture are worth their money."""

from roles.base import Role
from roles.part import TOOLS, PartAnswer, write_mandate

RULES = (
    "A request passes all stages in turn. In a stage with several branches it waits for the slowest "
    "branch, and the stage is up while at least one of its branches is up. A branch passes all its "
    "components in turn and is up while all of them are. A component is up while at least one of its "
    "machines is; machines fail independently, each with the availability stated. Latency is the sum over "
    "the stages. Availability of the whole is the probability that all stages are up, rounded down to 0.01 "
    "%. A spare adds one machine, a faster component has the latency stated, in a managed component every "
    "machine has the availability stated; upgrades of one component may be combined."
)

EXAMPLE = {"part": ["spare lamp drive", "faster fog sensor"], "cost": 13, "worth": 22}

ROLE = Role(
    name="cto",
    title="CTO",
    mandate=write_mandate("CTO", "architecture", RULES, EXAMPLE),
    answer=PartAnswer,
    tools=TOOLS,
    letter="T",
)

"""The CTO: which candidate architecture meets the requirements at the lowest cost."""

from roles.base import Answer, Role, Tool


class CtoAnswer(Answer):
    """Example: CtoAnswer(option="B", cost=42, latency=35, availability=97)"""

    option: str  # letter of the chosen architecture
    cost: int  # k$ per month
    latency: int  # ms
    availability: int  # percent, rounded down


_OPTION = {
    "type": "object",
    "properties": {"option": {"type": "string", "description": "letter of the option"}},
    "required": ["option"],
    "additionalProperties": False,
}

ROLE = Role(
    name="cto",
    title="CTO",
    mandate=(
        "You are the CTO. Choose the cheapest architecture that meets every requirement in the brief. "
        "Latency (ms) is that of the slowest path from the first component to the last. Availability "
        "(percent, rounded down) is the probability that some path of running components joins them; a "
        "component with replicas is down only when all of them are. Throughput (thousand requests per "
        "second) is the largest flow that the components carry. Cost is in k$ per month. Measure every "
        'option, then answer with one JSON object: {"option": "...", "cost": ..., "latency": ..., '
        '"availability": ...}.'
    ),
    answer=CtoAnswer,
    tools=(
        Tool(
            name="measure",
            description=(
                "Exact latency, availability, throughput (where required) and cost of one option; the letter "
                "of an option that comes in builds asks about each of them."
            ),
            parameters=_OPTION,
        ),
        Tool(
            name="describe",
            description="Components (with replicas) and connections of one option.",
            parameters=_OPTION,
        ),
    ),
    letter="T",
)

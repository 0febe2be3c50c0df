"""A seat's answer to a question about one part of a plan, and the tools that it works with."""

from typing import Annotated

from pydantic import Field

from roles.base import Answer, Tool
from roles.table import Figure


class PartAnswer(Answer):
    """What a seat would buy on one option, with its figures.

    Example: PartAnswer(part=["spare gateway"], cost=9, worth=14)
    """

    part: Annotated[list[str], Field(max_length=20)]  # names of upgrades; [] buys nothing
    cost: Figure  # k$ a month
    worth: Figure  # k$ a month, over buying nothing


_OPTION = {"type": "string", "description": "letter of the option"}
_PART = {"type": "array", "items": {"type": "string"}, "description": "names of upgrades; [] buys nothing"}

TOOLS = (
    Tool(
        name="describe",
        description="One option in your field: its whole structure, and each upgrade with its effect.",
        parameters={
            "type": "object",
            "properties": {"option": _OPTION},
            "required": ["option"],
            "additionalProperties": False,
        },
    ),
    Tool(
        name="measure",
        description="Exact figures, cost and worth of one part, and whether your hard limit holds.",
        parameters={
            "type": "object",
            "properties": {"option": _OPTION, "part": _PART},
            "required": ["option", "part"],
            "additionalProperties": False,
        },
    ),
)

"""A seat's own work, the best part of a plan on one option: its answer, its tools and its mandate."""

import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from roles.base import Answer, Tool
from roles.limits import ANSWER_RULES, TOOL_RULES
from roles.team import MOST_FIGURE, Figure

MAX_CALLS = 24  # of tools in one question


class PartAnswer(Answer):
    """The part that a seat would buy on one option, with its figures.

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


def write_mandate(officer: str, structures: str, rules: str, example: Mapping[str, Any]) -> str:
    """The system message: the task, every rule that the best part depends on, tools, schema, an example.

    Example: write_mandate("CTO", "architecture", "Latency is the sum over the stages.", {"part": [], ...})
    """
    return "\n".join(
        (
            f"You are the {officer} of a company. You know the {structures} of every option that the company "
            "can take. You are asked about one option and one amount of money: find the best part of a plan "
            "that you could have funded there.",
            "A part is any set of the upgrades on offer; the empty set buys nothing. Its cost is the sum "
            "of the costs of its upgrades, unless a rule below says otherwise. Its worth is what the "
            "figures with the part are worth, less what the figures are worth when nothing is bought. All "
            "money is in k$ a month; a single payment counts with its share of a month.",
            "The best part costs at most the amount, keeps your hard limit, and has the greatest worth of "
            "all such parts; of equal worth the cheaper one. A part that costs more or breaks the hard "
            "limit counts nothing. Money that is left is worth nothing.",
            f"Rules of the figures. {rules}",
            "Tools: describe(option) shows the whole structure of the option and what every upgrade does; "
            "measure(option, part) tells the exact figures, the cost and the worth of a part and whether "
            f"your hard limit holds. You may call tools {MAX_CALLS} times in all. {TOOL_RULES}",
            "End with one JSON object with exactly these keys: part (list of names of upgrades as they are "
            "written in the question, in any order, each at most once; [] buys nothing), cost (whole k$), "
            f"worth (whole k$), both within {MOST_FIGURE:,}. Nothing may follow it. {ANSWER_RULES} "
            "Example of an answer in another case: "
            f"{json.dumps(example)}",
        )
    )

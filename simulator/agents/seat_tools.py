"""Tools of a seat in a team case, for agents that may call any: its own figures, and a calculator."""

from dataclasses import replace

from roles.base import Role, Tool
from scenarios.base import ToolCall, ToolError
from scenarios.tasks.grading.arithmetic import CALCULATOR, call_calculator
from scenarios.team import Seat

OWN_FIGURES = Tool(
    name="own_figures",
    description="What one option is worth to this seat, its stakes and its limit.",
    parameters={
        "type": "object",
        "properties": {"option": {"type": "string"}},
        "required": ["option"],
        "additionalProperties": False,
    },
)
MAX_CALLS = 40  # per episode and seat


def with_seat_tools(role: Role, seat: Seat | None) -> Role:
    """Return the role with its tools in this seat (None: ReconcileGPT, which knows reports alone)."""
    tools = (OWN_FIGURES, CALCULATOR) if seat is not None and "utilities" in seat.facts else (CALCULATOR,)
    return replace(role, name=f"{role.name}+seat", tools=tools)


class SeatTools:
    """Answers the tool calls of one seat in one episode.

    Example: SeatTools(seat)(ToolCall(name="calculator", arguments={"expression": "2 + 3"})) == "5"
    """

    def __init__(self, seat: Seat | None) -> None:
        self._facts = {} if seat is None else seat.facts
        self._num_calls = 0

    def __call__(self, call: ToolCall) -> str:
        """Answer one call with an observation.

        Raises:
            ToolError: an unknown tool, wrong arguments, or no calls left.
        """
        self._num_calls += 1
        if self._num_calls > MAX_CALLS:
            raise ToolError(f"no calls left: at most {MAX_CALLS}; answer now")
        if call.name == CALCULATOR.name:
            return call_calculator(call.arguments)
        if call.name != OWN_FIGURES.name or "utilities" not in self._facts:
            raise ToolError(f"unknown tool {call.name[:60]!r}")
        option = call.arguments.get("option")
        utilities = self._facts["utilities"]
        if set(call.arguments) != {"option"} or not isinstance(option, str) or option not in utilities:
            raise ToolError(f"own_figures takes one argument: option, one of {' '.join(utilities)}")
        return f"{option} {utilities[option]} stakes {self._facts['stakes']} limit {self._facts['limit']}"

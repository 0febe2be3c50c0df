"""Tools of a seat at the table, for agents that may call any."""

from roles.limits import MAX_SEAT_CALLS
from scenarios.base import ToolCall, ToolError
from simulator.game import Reports, TeamGame


class SeatTools:
    """Answers the tool calls of one seat in one episode.

    Example: SeatTools(game, "cto")(ToolCall(name="describe", arguments={"option": "A"}))
    """

    def __init__(self, game: TeamGame, seat: str) -> None:
        self._game, self._seat = game, seat
        self._num_calls = 0
        self.reports: Reports = {}  # what ReconcileGPT's tools reckon with

    def __call__(self, call: ToolCall) -> str:
        """Answer one call with an observation.

        Raises:
            ToolError: an unknown tool, wrong arguments, or no calls left.
        """
        self._num_calls += 1
        if self._num_calls > MAX_SEAT_CALLS:
            raise ToolError(f"no calls left: at most {MAX_SEAT_CALLS}; answer now")
        return self._game.call_tool(self._seat, call, self.reports)

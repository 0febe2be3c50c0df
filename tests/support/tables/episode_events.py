"""An observer that keeps the events of an episode."""

from collections.abc import Mapping
from typing import Any

from simulator.records import Turn


class Diary:
    """Keeps every event of one episode."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def on_turn(self, role: str, turn: Turn, duration_s: float) -> None:
        assert duration_s > 0
        self.events.append(("turn", role, turn))

    def on_tool(self, role: str, call: str, observation: str) -> None:
        self.events.append(("tool", role, call, observation))

    def on_report(self, role: str, text: str, parsed: Any) -> None:
        self.events.append(("report", role, text, parsed))

    def on_ask(self, text: str, ask: Mapping[str, Any]) -> None:
        self.events.append(("ask", "reconcile", text, ask))

    def on_reply(self, role: str, text: str, parsed: Any) -> None:
        self.events.append(("reply", role, text, parsed))

    def on_decision(self, text: str, parsed: Any, round: int) -> None:
        self.events.append(("decision", "reconcile", text, parsed, round))

    def on_vote(self, role: str, text: str, parsed: Any) -> None:
        self.events.append(("vote", role, text, parsed))

    def on_governance(self, kind: str, body: Mapping[str, Any]) -> None:
        self.events.append(("governance", kind, body))

    def on_end(self, error: str | None) -> None:
        self.events.append(("end", "", error))

    def kinds(self) -> list[str]:
        return [event[0] for event in self.events]

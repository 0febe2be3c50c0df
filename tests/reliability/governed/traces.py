"""Governed episodes with what their logs say: read while their store is open."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from simulator.governance.gate import Standing
from simulator.governance.log import Entry
from simulator.governance.runner import GovernanceServices, GovernedEpisode


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedEpisode(GovernedEpisode):
    """An episode, the kind and body of its entries (what seats said first; no time in it), and its state."""

    trace: tuple[tuple[str, Any], ...]
    standing: Standing

    @property
    def proposal(self) -> dict[str, Any]:
        """The latest that was displayed."""
        found: dict[str, Any] = self.standing.latest.entry.body["request"]["proposal"]
        return found


def trace(services: GovernanceServices, episodes: Sequence[GovernedEpisode]) -> list[TracedEpisode]:
    """Add to each episode what its log says."""
    return [
        TracedEpisode(
            **{field.name: getattr(episode, field.name) for field in fields(GovernedEpisode)},
            trace=read_trace(services.log.read(episode.thread)),
            standing=services.gate.stand(episode.thread),
        )
        for episode in episodes
    ]


def read_trace(entries: Sequence[Entry]) -> tuple[tuple[str, Any], ...]:
    """List the words and decisions of a thread; the same for every play of the same case.

    Seats that speak at once are listed one after the other.
    """
    said = [entry for entry in entries if entry.kind == "said"]
    said.sort(key=lambda entry: str(entry.body["role"]))
    others = [entry for entry in entries if entry.kind != "said"]
    return tuple(
        (entry.kind, {name: value for name, value in entry.body.items() if name != "expires_at_s"})
        for entry in [*said, *others]
    )

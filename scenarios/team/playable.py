"""What a team can play: options, and what each seat reads. Truth is no part of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from scenarios.team.case import Seat
from scenarios.team.conventions import HOUSE, Conventions


class PlayableCase(Protocol):
    """A generated scenario, or a case that a person wrote."""

    @property
    def key(self) -> str:
        """Names the case; no two cases share one."""
        ...

    @property
    def options(self) -> tuple[str, ...]: ...

    @property
    def seats(self) -> Mapping[str, Seat]:
        """By specialist, in speaking order."""
        ...

    @property
    def conventions(self) -> Conventions:
        """How experts play it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicCase:
    """What everybody at the table may know of a case.

    Example: PublicCase.of(generate("train", seed=0, index=7, difficulty=2)).options == ("A", "B", "C")
    """

    key: str
    options: tuple[str, ...]
    seats: Mapping[str, Seat]  # empty: what a seat reads is its own
    conventions: Conventions = HOUSE

    @classmethod
    def of(cls, case: PlayableCase) -> "PublicCase":
        """The case without its seats."""
        return cls(key=case.key, options=case.options, seats={}, conventions=case.conventions)

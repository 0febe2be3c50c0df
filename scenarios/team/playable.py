"""Cases that a team can play: a generated scenario or a case that a person wrote. Truth is no part of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from scenarios.company.records import Option, Part


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """One specialist at the table and what it alone knows, as JSON values.

    Facts of a domain's seat: `structures` by option, `rates`, `limits`. Facts of a listed seat: see
    `scenarios.team.listed_seat`. Either may hold `words`, facts that a person wrote.

    Example: Seat(role="cto", facts={"structures": {"A": {...}}, "rates": {...}, "limits": {...}})
    """

    role: str
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicCase:
    """Facts that everybody at the table knows.

    Example: PublicCase(sector="bank", situation="...", options={"A": Option(...)}, budget=40,
                        seats=("cto", "coo", "risk", "cost"), offers_per_option=1)
    """

    sector: str
    situation: str  # what the company faces
    options: Mapping[str, Option]  # by letter, in order
    budget: int  # k$
    seats: tuple[str, ...]
    offers_per_option: int = 1  # most offers of one seat on one option
    wording: int = 0  # number of the wording of full texts

    @property
    def base(self) -> dict[str, int]:
        """Option -> k$ before any spending."""
        return {letter: option.base for letter, option in self.options.items()}


class PlayableCase(Protocol):
    """A case that a team can play."""

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
    def public(self) -> PublicCase: ...

    def parts_of(self, seat: str, option: str) -> tuple[Part, ...] | None:
        """Every part that the seat can propose on the option, () first; None where nobody can tell.

        Claims are checked against these; where there are none they are taken as they are.
        """
        ...

"""Scenarios that are generated when they are asked for: a long stage holds few of them at once."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import overload

from scenarios.base import Scenario

MOST_HELD = 1024  # more than a step and its groups ask for again


class DrawnScenarios(Sequence[Scenario]):
    """A sequence whose item `place` is `draw(place)`; the last MOST_HELD are kept.

    Example: len(DrawnScenarios(lambda place: generate("train", 0, place, 1), 8)) == 8
    """

    def __init__(self, draw: Callable[[int], Scenario], count: int) -> None:
        self._draw, self._count = lru_cache(MOST_HELD)(draw), count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> Scenario: ...
    @overload
    def __getitem__(self, place: slice) -> list[Scenario]: ...
    def __getitem__(self, place: int | slice) -> Scenario | list[Scenario]:
        """Return the scenario at a place.

        Raises:
            IndexError: outside the sequence.
        """
        if isinstance(place, slice):
            return [self._draw(one) for one in range(*place.indices(self._count))]
        if not -self._count <= place < self._count:
            raise IndexError(f"no scenario {place} of {self._count}")
        return self._draw(place % self._count)

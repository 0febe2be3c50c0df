"""Efficient parts of one seat, and the best combination of one part per seat within a budget."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Generic, NamedTuple, TypeVar

from scenarios.company.records import Part

T = TypeVar("T")
Parts = Mapping[str, Mapping[str, Sequence[Part]]]  # seat -> option letter -> parts


class Same(Generic[T]):
    """An object as a key of a cache: equal to itself alone, so that no figure is compared.

    A key that is cached keeps its object alive, so no other can take its id.
    """

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value


def list_efficient(parts: Sequence[Part], keeping: bool = True) -> tuple[Part, ...]:
    """The parts that keep the limit and are worth more than every cheaper one, by rising cost.

    Without `keeping` the limit is left out of account.
    """
    return _list_efficient(Same(tuple(parts)), keeping)


@lru_cache(maxsize=1024)  # a case's parts are asked for when it is drawn, solved, played and scored
def _list_efficient(same: Same[tuple[Part, ...]], keeping: bool) -> tuple[Part, ...]:
    efficient: list[Part] = []
    counted = [part for part in same.value if part.keeps_limit or not keeping]
    counted.sort(key=attrgetter("worth"), reverse=True)
    counted.sort(key=attrgetter("cost"))  # of equal cost the greatest worth stays first
    for part in counted:
        if not efficient or part.worth > efficient[-1].worth:
            efficient.append(part)
    return tuple(efficient)


def take_within(efficient: Sequence[Part], amount: int) -> Part | None:
    """The part of the largest worth that costs at most `amount`; None where all cost more.

    `efficient` is in the order of `list_efficient`.
    """
    within = [part for part in efficient if part.cost <= amount]
    return within[-1] if within else None


def has_twins(parts: Sequence[Part]) -> bool:
    """Return whether some efficient part has a twin of the same cost and worth that keeps the limit too."""
    counts = Counter([(part.cost, part.worth) for part in parts if part.keeps_limit])
    return any(counts[part.cost, part.worth] > 1 for part in list_efficient(parts))


class Combination(NamedTuple):
    """Parts of several seats on one option that nothing dominates.

    Example: combination.worth, combination.cost, combination.list_parts()
    """

    cost: int
    worth: int
    num_ways: int  # of reaching this cost and worth
    before: "Combination | None"  # the same without the last seat; None without any
    part: Part | None  # of the last seat

    def list_parts(self) -> list[Part]:
        """One part per seat, in the order of the seats."""
        if self.before is None or self.part is None:
            return []
        return [*self.before.list_parts(), self.part]


def combine(efficient: Sequence[Sequence[Part]], budget: int) -> list[Combination]:
    """Every combination of one part per seat within the budget that no other dominates, by rising cost.

    `efficient` holds each seat's efficient parts by rising cost; empty where some seat cannot be paid.
    """
    table = [Combination(0, 0, 1, None, None)]
    for parts in efficient:
        choices = [(part.cost, part.worth, part) for part in parts]
        best: dict[int, tuple[int, int, Combination, Part]] = {}
        for combination in table:
            spent, gained, num_ways, _, _ = combination
            for part_cost, part_worth, part in choices:
                cost, worth = spent + part_cost, gained + part_worth
                if cost > budget:
                    break
                seen = best.get(cost)
                if seen is None or worth > seen[0]:
                    best[cost] = (worth, num_ways, combination, part)
                elif worth == seen[0]:
                    best[cost] = (worth, seen[1] + num_ways, seen[2], seen[3])
        table = []
        for cost in sorted(best):
            worth, num_ways, before, part = best[cost]
            if not table or worth > table[-1].worth:
                table.append(Combination(cost, worth, num_ways, before, part))
    return table


def solve_options(parts: Parts, letters: Sequence[str], budget: int) -> dict[str, Combination]:
    """The best combination of every option on which all limits can be kept within the budget."""
    best = {}
    for letter in letters:
        combinations = combine([list_efficient(own[letter]) for own in parts.values()], budget)
        if combinations:
            best[letter] = combinations[-1]
    return best

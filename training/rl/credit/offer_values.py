"""Worth of reports by the verifier: nothing is generated.

The offers of a coalition are worth the team reward of the best plan that can be run by their reports, all
votes right. Seats that are out report nothing, so a limit that only they know of may break.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from roles.team import Decision
from scenarios.team import Table, TeamScenario, judge_decision
from scenarios.team.experts import best_decision
from simulator.reward import TeamRewardWeights, combine_parts

# seat -> its counterfactual rewards, for every set of reports of a case
OfferValues = list[dict[str, tuple[float, ...]]]
ValueOffers = Callable[[TeamScenario, Sequence[Table], TeamRewardWeights], OfferValues]


def coalition_reward(
    scenario: TeamScenario,
    table: Table,
    seats: Iterable[str],
    weights: TeamRewardWeights,
) -> float:
    """Team reward of the best plan by the reports of these seats alone."""
    inside = set(seats)
    heard = {seat: report if seat in inside else None for seat, report in table.items()}
    decision: Decision = best_decision(scenario.public, heard, "exact")
    judged = judge_decision(scenario, heard, decision)
    unresolved = len(judged.broken_limits) / len(scenario.seats)
    return combine_parts(judged.value, 1.0, unresolved, float(judged.escalation_fault), weights)


def shapley_values(scenario: TeamScenario, table: Table, weights: TeamRewardWeights) -> dict[str, float]:
    """Seat -> exact Shapley value of its report: mean gain it brings over all orders of speaking.

    The values add up to the reward of all reports less that of none.
    """
    seats = list(table)
    rewards = {
        inside: coalition_reward(scenario, table, inside, weights) for inside in list_coalitions(seats)
    }
    return share_gains(seats, rewards)


def list_coalitions(seats: Sequence[str]) -> Iterator[frozenset[str]]:
    """List all sets of these seats, the smaller ones first."""
    for size in range(len(seats) + 1):
        yield from map(frozenset, itertools.combinations(seats, size))


def share_gains(seats: Sequence[str], rewards: Mapping[frozenset[str], float]) -> dict[str, float]:
    """Seat -> its Shapley value, from the reward of every coalition of the seats."""
    return {
        seat: math.fsum(
            _share_of_orders(len(inside), len(seats)) * (rewards[inside | {seat}] - reward)
            for inside, reward in rewards.items()
            if seat not in inside
        )
        for seat in seats
    }


def _share_of_orders(num_before: int, num_seats: int) -> float:
    """Share of all orders in which exactly these seats speak before a given one."""
    after = num_seats - num_before - 1
    return math.factorial(num_before) * math.factorial(after) / math.factorial(num_seats)


def cross_values(scenario: TeamScenario, tables: Sequence[Table], weights: TeamRewardWeights) -> OfferValues:
    """Per set: seat -> reward of the best plan by its report and the partners of every set, n x n in all."""
    known: dict[tuple[int, ...], float] = {}
    first = {seat: [_find_equal(tables, seat, place) for place in range(len(tables))] for seat in tables[0]}

    def value(own: str, donor: int, partners: int) -> float:
        key = tuple(first[seat][donor if seat == own else partners] for seat in first)
        if key not in known:
            mixed = {seat: tables[place][seat] for seat, place in zip(first, key, strict=True)}
            known[key] = coalition_reward(scenario, mixed, first, weights)
        return known[key]

    places = range(len(tables))
    return [{seat: tuple(value(seat, own, other) for other in places) for seat in first} for own in places]


def each_set_alone(
    value: Callable[[TeamScenario, Table, TeamRewardWeights], Mapping[str, float]],
) -> ValueOffers:
    """Value every set of reports by itself."""

    def value_all(scenario: TeamScenario, tables: Sequence[Table], weights: TeamRewardWeights) -> OfferValues:
        return [
            {seat: (worth,) for seat, worth in value(scenario, table, weights).items()} for table in tables
        ]

    return value_all


def _find_equal(tables: Sequence[Table], seat: str, place: int) -> int:
    """The first set in which the seat's report reads the same."""
    return next(number for number, table in enumerate(tables) if table[seat] == tables[place][seat])

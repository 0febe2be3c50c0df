"""Worth of the offers of some seats alone, by the verifier: nothing is generated.

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

ValueOffers = Callable[[TeamScenario, Table, TeamRewardWeights], Mapping[str, float]]


def coalition_reward(
    scenario: TeamScenario, table: Table, seats: Iterable[str], weights: TeamRewardWeights
) -> float:
    """Team reward of the best plan by the reports of these seats alone."""
    inside = set(seats)
    heard = {seat: report if seat in inside else None for seat, report in table.items()}
    decision: Decision = best_decision(scenario.public, heard, "exact")
    judged = judge_decision(scenario, heard, decision)
    unresolved = len(judged.broken_limits) / len(scenario.seats)
    return combine_parts(judged.value, 1.0, unresolved, float(judged.escalation_fault), weights)


def value_without(scenario: TeamScenario, table: Table, weights: TeamRewardWeights) -> dict[str, float]:
    """Seat -> reward of the best plan by the other seats' reports."""
    return {
        seat: coalition_reward(scenario, table, [other for other in table if other != seat], weights)
        for seat in table
    }


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

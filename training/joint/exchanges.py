"""Exchanges of one report within its group: what each would be worth among the partners of every set.

ReconcileGPT's decision on a mixed set was never taken; `training/joint/play.py` has two ways to value it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from scenarios.team import TeamScenario
from simulator.records import Episode
from simulator.reward import TeamVerdict
from training.joint.credit.counterfactuals import mixed_sets
from training.joint.played import PlayedSet, group_by_scenario

# of a case, reports, and the verdict on what these partners decided first; None: an engine's fault
Worth = Callable[[TeamScenario, Episode, TeamVerdict], float | None]


def mixed_episodes(played: Sequence[PlayedSet]) -> Iterator[tuple[TeamScenario, Episode]]:
    """Every exchange of all cases, own sets included."""
    for group in group_by_scenario(played):
        scenario = group[0].scenario
        for _, _, _, mixed in mixed_sets([one.episode for one in group], list(scenario.seats)):
            yield scenario, mixed


def fill_exchanges(played: Sequence[PlayedSet], worth: Worth) -> list[PlayedSet]:
    """The sets with `swapped` filled in; cases that an engine's fault left without a worth are left out."""
    filled: list[PlayedSet] = []
    for group in group_by_scenario(played):
        scenario = group[0].scenario
        swapped: list[dict[str, list[float]]] = [{role: [] for role in scenario.seats} for _ in group]
        complete = True
        for role, own, place, mixed in mixed_sets([one.episode for one in group], list(scenario.seats)):
            value = worth(scenario, mixed, group[place].verdicts[0])
            if value is None:
                complete = False
                break
            swapped[own][role].append(value)
        if complete:
            filled += [
                replace(one, swapped={role: tuple(row) for role, row in values.items()})
                for one, values in zip(group, swapped, strict=True)
            ]
    return filled

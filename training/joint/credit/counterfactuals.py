"""Counterfactual reports of a group: one seat's report swapped for another set's.

ReconcileGPT decides on them anew: nobody knows its decision on reports that were never sent together.
Sessions are named by scenario, so that a scenario samples the same on every rank.
"""

import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from scenarios.team import TeamScenario
from simulator.graph.concurrency import run_all
from simulator.reading import read_reports
from simulator.records import Episode
from training.joint.records import Counterfactual, EpisodeGroup

# (sets of reports, decisions on each, name of the stream) -> decisions, those on one set side by side
Decide = Callable[[Sequence[tuple[TeamScenario, Episode]], int, str], Awaitable[list[Episode]]]


class Counterfactuals(Protocol):
    """Plays the counterfactual decisions that a credit scheme needs."""

    async def play(
        self, groups: Sequence[EpisodeGroup], decide: Decide, decisions_per_set: int
    ) -> list[EpisodeGroup]:
        """The groups with their counterfactuals."""
        ...


class NoCounterfactuals:
    """Plays nothing: the scheme reads the step's own decisions alone."""

    async def play(
        self, groups: Sequence[EpisodeGroup], decide: Decide, decisions_per_set: int
    ) -> list[EpisodeGroup]:
        return list(groups)


class SwappedReports:
    """Plays decisions on every report of a group among the partners of every set of the group.

    Reports that read the same are decided on once.
    """

    async def play(
        self, groups: Sequence[EpisodeGroup], decide: Decide, decisions_per_set: int
    ) -> list[EpisodeGroup]:
        return await run_all(self._play_group(group, decide, decisions_per_set) for group in groups)

    async def _play_group(self, group: EpisodeGroup, decide: Decide, num: int) -> EpisodeGroup:
        scenario = group.scenario
        swaps = list(swap_reports([one.episodes[0] for one in group.report_sets], list(scenario.seats)))
        keys = [key_of(scenario, reports) for _, _, _, reports in swaps]
        asked: dict[str, Episode] = {}
        for key, (_, _, _, reports) in zip(keys, swaps, strict=True):
            asked.setdefault(key, reports)
        decided = await decide([(scenario, reports) for reports in asked.values()], num, "swapped")
        by_key = {key: decided[place * num : (place + 1) * num] for place, key in enumerate(asked)}
        found = tuple(
            Counterfactual(
                role=role,
                report_set=own,
                partners=partners,
                episodes=tuple(replace(one, reports=reports.reports) for one in by_key[key]),
            )
            for key, (role, own, partners, reports) in zip(keys, swaps, strict=True)
        )
        return replace(group, counterfactuals=found)


def swap_in(partners: Episode, donor: Episode, role: str) -> Episode:
    """The reports of `partners` with the role's own taken from `donor`; nothing else of either counts."""
    return replace(partners, reports={**partners.reports, role: donor.reports[role]}, asked=())


def swap_reports(
    episodes: Sequence[Episode], roles: Sequence[str]
) -> Iterator[tuple[str, int, int, Episode]]:
    """(role, set of its report, set of its partners, the reports) for every swap, own sets included."""
    for role in roles:
        for own, donor in enumerate(episodes):
            for place, partners in enumerate(episodes):
                yield role, own, place, swap_in(partners, donor, role)


def key_of(scenario: TeamScenario, episode: Episode) -> str:
    """All that ReconcileGPT would learn: sets of reports with equal keys are decided on once."""
    return json.dumps(read_reports(scenario, episode))

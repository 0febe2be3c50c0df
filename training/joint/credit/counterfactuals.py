"""Counterfactual reports of a group: one seat's report left out, or swapped for another set's.

ReconcileGPT decides on them anew: nobody knows its decision on reports that were never sent together.
Sessions are named by scenario, so that a scenario samples the same on every rank.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from scenarios.team import TeamScenario, decision_brief, parse_report
from simulator.graph.concurrency import run_all
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


class AbsentReports:
    """Plays one decision on every set of reports without each of its reports."""

    async def play(
        self, groups: Sequence[EpisodeGroup], decide: Decide, decisions_per_set: int
    ) -> list[EpisodeGroup]:
        return await run_all(self._play_group(group, decide) for group in groups)

    async def _play_group(self, group: EpisodeGroup, decide: Decide) -> EpisodeGroup:
        absent = [
            (role, number, leave_out(one.episodes[0], role))
            for number, one in enumerate(group.report_sets)
            for role in group.scenario.seats
        ]
        decided = await decide([(group.scenario, reports) for _, _, reports in absent], 1, "without")
        found = tuple(
            Counterfactual(role=role, report_set=number, partners=number, episodes=(episode,))
            for (role, number, _), episode in zip(absent, decided, strict=True)
        )
        return replace(group, counterfactuals=found)


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
        briefs = [brief_of(scenario, reports) for _, _, _, reports in swaps]
        asked: dict[str, Episode] = {}
        for brief, (_, _, _, reports) in zip(briefs, swaps, strict=True):
            asked.setdefault(brief, reports)
        decided = await decide([(scenario, reports) for reports in asked.values()], num, "swapped")
        by_brief = {brief: decided[place * num : (place + 1) * num] for place, brief in enumerate(asked)}
        found = tuple(
            Counterfactual(
                role=role,
                report_set=own,
                partners=partners,
                episodes=tuple(replace(one, reports=reports.reports) for one in by_brief[brief]),
            )
            for brief, (role, own, partners, reports) in zip(briefs, swaps, strict=True)
        )
        return replace(group, counterfactuals=found)


def leave_out(episode: Episode, role: str) -> Episode:
    """The same reports with the role's own missing: the default action of `difference` credit."""
    return replace(episode, reports={**episode.reports, role: ""})


def swap_in(partners: Episode, donor: Episode, role: str) -> Episode:
    """The reports of `partners` with the role's own taken from `donor`; nothing else of either counts."""
    return replace(partners, reports={**partners.reports, role: donor.reports[role]})


def swap_reports(
    episodes: Sequence[Episode], roles: Sequence[str]
) -> Iterator[tuple[str, int, int, Episode]]:
    """(role, set of its report, set of its partners, the reports) for every swap, own sets included."""
    for role in roles:
        for own, donor in enumerate(episodes):
            for place, partners in enumerate(episodes):
                yield role, own, place, partners if own == place else swap_in(partners, donor, role)


def brief_of(scenario: TeamScenario, episode: Episode) -> str:
    """All that ReconcileGPT would read: reports of equal briefs are decided on once."""
    reports = {role: parse_report(scenario, text) for role, text in episode.reports.items()}
    return decision_brief(scenario.options, reports)

"""What one step of joint training played: sets of reports, the decisions on each, their worth."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from scenarios.team import TeamScenario, parse_decision, parse_report
from simulator.records import Episode
from simulator.reward import TeamVerdict
from training.joint.credit.base import ReportSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Plans:
    """The plans of one governed episode, from the first to the last re-plan.

    Example: Plans(values=(0.0, 0.8), of_call=(0, 1), ruled_out=("B",))
    """

    values: tuple[float, ...]  # what each was worth once carried out, in [0, 1]
    of_call: tuple[int, ...]  # for each call of ReconcileGPT the number of the plan it worked on
    ruled_out: tuple[str, ...]  # options that execution took out of the case


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedSet:
    """One set of reports and all decisions taken on it; the first is that of the full episode."""

    scenario: TeamScenario
    decisions: tuple[Episode, ...]
    verdicts: tuple[TeamVerdict, ...]  # aligned with decisions
    without: Mapping[str, float] = field(default_factory=dict)  # see ReportSet
    swapped: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    greedy_episode: float | None = None  # reward of the scenario played greedily; None where not played
    greedy_decision: float | None = None  # reward of the greedy decision on these reports
    plans: Plans | None = None  # of a governed episode; None under protocol `assess`

    @property
    def episode(self) -> Episode:
        """The full episode, with the specialists' trajectories and votes."""
        return self.decisions[0]

    @property
    def report_set(self) -> ReportSet:
        return ReportSet(
            rewards=tuple(verdict.reward for verdict in self.verdicts),
            without=self.without,
            swapped=self.swapped,
        )


def group_by_scenario(played: Iterable[PlayedSet]) -> list[list[PlayedSet]]:
    """Report sets of the same scenario side by side."""
    groups: dict[str, list[PlayedSet]] = {}
    for one in played:
        groups.setdefault(one.scenario.key, []).append(one)
    return list(groups.values())


def complete_groups(played: Sequence[PlayedSet], report_sets: int) -> list[PlayedSet]:
    """Drop every scenario of which an infrastructure fault took a report set."""
    return [one for group in group_by_scenario(played) if len(group) == report_sets for one in group]


def pick_agreement(scenario: TeamScenario, episode: Episode) -> float:
    """Share of the seats whose own pick is what was decided: agreement, right or wrong."""
    decision = parse_decision(scenario, episode.decision)
    reports = [parse_report(scenario, text) for text in episode.reports.values()]
    if decision is None or not reports:
        return 0.0
    return sum(report is not None and report.pick == decision.option for report in reports) / len(reports)


def heard_episode(played: PlayedSet) -> Episode:
    """The episode with its reports as ReconcileGPT last read them: options that are out stand as vetoed."""
    if played.plans is None or not played.plans.ruled_out:
        return played.episode
    reports = {}
    for role, text in played.episode.reports.items():
        report = parse_report(played.scenario, text)
        reports[role] = text
        if report is not None:
            veto = sorted({*report.veto, *played.plans.ruled_out})
            reports[role] = json.dumps(report.model_dump() | {"veto": veto})
    return replace(played.episode, reports=reports)

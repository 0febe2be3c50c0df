"""What one step of joint training played: sets of reports, the decisions on each, their worth."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from scenarios.team import TeamScenario, parse_decision, parse_report
from simulator.records import Episode
from simulator.reward import TeamVerdict
from training.credit.base import ReportSet


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

"""Team rewards of many tables of one case: each report is read once, each table is decided and judged once.

Every vote is by the book, so the reward is that of `score_episode` with all votes right.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

from evaluation.audit.team_cheats import REPORT_CHEATS
from evaluation.scoring.baselines import book_episode
from roles.team import Decision, Report
from scenarios.team import TeamScenario, judge_decision
from scenarios.team.experts import REPORT_HABITS, best_decision, best_report, sample_habit
from scenarios.team.game import PlanGame
from scenarios.team.offers import CheckedReport, load_report
from simulator.records import Episode
from simulator.reward import TeamRewardWeights, combine_parts, score_episode
from training.rl.records import ScoredEpisode

Table = dict[str, CheckedReport | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The gain and the advantages of a cheat in one case.

    Example: Effect(gain=-0.1, advantages={"shared": [[0.05, -0.05]]})
    """

    gain: float  # team reward with the cheat less that without, over partners and decisions
    # scheme -> for each cheater the advantages of its reports or votes: honest, cheating, honest, ...
    advantages: dict[str, list[list[float]]]


class CaseRewards:
    """One case, with every reward that was asked for."""

    def __init__(self, scenario: TeamScenario, weights: TeamRewardWeights) -> None:
        self.scenario, self.weights = scenario, weights
        self.effects: dict[tuple[object, ...], Effect] = {}  # of cheats that read the same
        self._game = PlanGame(scenario)
        self._rewards: dict[tuple[str, tuple[int, ...]], float] = {}
        self._decisions: dict[tuple[str, tuple[int, ...]], Decision] = {}
        self._voted: dict[tuple[object, ...], ScoredEpisode] = {}
        self._read: dict[tuple[str, str], CheckedReport | None] = {}
        self._same: dict[CheckedReport, CheckedReport] = {}  # one object for reports that say the same
        self._honest: dict[tuple[str, str], Report] = {}

    def write(self, seat: str, habit: str) -> Report:
        """Return what an expert of the habit reports."""
        key = (seat, habit)
        if key not in self._honest:
            self._honest[key] = best_report(self.scenario, seat, habit)
        return self._honest[key]

    def write_cheat(self, name: str, seat: str, honest: Mapping[str, Report]) -> str:
        """Return what the cheater writes in the seat's place."""
        return REPORT_CHEATS[name](self.scenario, seat, honest)

    def read(self, seat: str, text: str) -> CheckedReport | None:
        """Return the report as it stands on the table, without what no plan depends on."""
        key = (seat, text)
        if key not in self._read:
            parsed = self._game.read_report(seat, text)
            if parsed is None:
                self._read[key] = None
            else:
                report = replace(load_report(parsed), note="", false_claims=())
                self._read[key] = self.share(report)
        return self._read[key]

    def share(self, report: CheckedReport) -> CheckedReport:
        """Return the one object that stands for all reports that say this."""
        return self._same.setdefault(report, report)

    def is_objected(self, episode: Episode) -> bool:
        """Return whether a seat objects to the decision."""
        votes = map(self._game.read_vote, episode.votes.values())
        return any(vote is not None and vote["vote"] == "object" for vote in votes)

    def identify(self, table: Mapping[str, CheckedReport | None]) -> tuple[int, ...]:
        """Return a key that two tables of reports from `read` share where they say the same."""
        return tuple(id(table[seat]) for seat in self.scenario.seats)

    def decide(self, table: Mapping[str, CheckedReport | None], chair: str) -> Decision:
        """Return what a ReconcileGPT of this habit decides on the table."""
        key = (chair, self.identify(table))
        if key not in self._decisions:
            self._decisions[key] = best_decision(self.scenario.public, table, chair)
        return self._decisions[key]

    def vote(self, reports: Mapping[str, str], decision: str, votes: Mapping[str, str]) -> ScoredEpisode:
        """Return the scored episode of these texts; votes that are not given are by the book."""
        key = (tuple(reports.items()), decision, tuple(votes.items()))
        if key not in self._voted:
            episode = book_episode(self.scenario, reports, decision, votes=votes)
            verdict = score_episode(self.scenario, episode, self.weights)
            self._voted[key] = ScoredEpisode(episode=episode, verdict=verdict)
        return self._voted[key]

    def reward(self, table: Mapping[str, CheckedReport | None], chair: str) -> float:
        """Return the team reward of what a ReconcileGPT of this habit decides on the table."""
        key = (chair, self.identify(table))
        if key not in self._rewards:
            judged = judge_decision(self.scenario, table, self.decide(table, chair))
            unresolved = len(judged.broken_limits) / len(self.scenario.seats)
            self._rewards[key] = combine_parts(
                judged.value, 1.0, unresolved, float(judged.escalation_fault), self.weights
            )
        return self._rewards[key]


def draw_habits(scenario: TeamScenario, stream: str) -> dict[str, str]:
    """Draw a habit of each seat, by the shares of the experts who hold it."""
    rng = random.Random(f"{stream}/{scenario.key}")
    return {seat: sample_habit(rng, REPORT_HABITS) for seat in scenario.seats}

"""Rewards of the untrained baselines and of the oracle on the first scenarios of a data folder."""

import json
import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evaluation.scoring.baselines import book_episode, score_role_baselines, score_team_baselines
from evaluation.scoring.team_players import BEST_HABITS, play_experts
from roles.team import RECONCILER, Decision
from scenarios.base import Scenario
from scenarios.registry import FAMILIES
from scenarios.tasks.registry import TASK_FAMILIES
from scenarios.team import PlanGame, TeamScenario
from scenarios.team.demonstrations import hold_meeting
from scenarios.team.offers import load_table
from scenarios.team.value import judge_decision
from simulator.records import Episode
from simulator.reward import TeamRewardWeights, score_episode
from training.data.folders.row_statistics import RowStatistics
from training.data.folders.rows import SOLO_FAMILIES, TEAM, generate_case

SAMPLE_PER_DIFFICULTY = 100  # scenarios, the first of the data
BANDS = ((1, 3), (4, 6), (7, 10))  # of difficulty
BASELINES = ("random", "constant", "majority", "greedy", "oracle")
TEAM_CONSTANT = '{"option": "A", "fund": [], "escalate": false}'


@dataclass(frozen=True, slots=True, kw_only=True)
class BandScores:
    """Mean rewards of the baselines in one band of difficulty.

    Example: BandScores(band=(1, 3), num_scenarios=200, means={"random": 0.31, "constant": 0.31, ...})
    """

    band: tuple[int, int]
    num_scenarios: int
    means: Mapping[str, float]  # by baseline; the verified reward, in the team family the team reward R


def score_baselines(family: str, found: RowStatistics) -> Iterator[BandScores]:
    """Scores per band on up to SAMPLE_PER_DIFFICULTY scenarios of each difficulty that the data has.

    `majority` gives every answer field its most common value among the data's answers of that difficulty.
    """
    for band in BANDS:
        rewards: dict[str, list[float]] = {name: [] for name in BASELINES}
        for difficulty in sorted(level for level in found.keys if band[0] <= level <= band[1]):
            keys = list(found.keys[difficulty])[:SAMPLE_PER_DIFFICULTY]
            cases = [_generate(key) for key in keys]
            majority = found.majority_answer(
                RECONCILER if family == TEAM else SOLO_FAMILIES[family].role, difficulty
            )
            for name, values in _play(family, cases, json.dumps(majority)).items():
                rewards[name] += values
        if rewards["oracle"]:
            means = {name: statistics.fmean(values) for name, values in rewards.items()}
            yield BandScores(band=band, num_scenarios=len(rewards["oracle"]), means=means)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeetingScores:
    """Worth of the plans that the experts' meetings of the rows funded, in one band of difficulty.

    Example: MeetingScores(band=(1, 3), values=(0.81, 1.0))
    """

    band: tuple[int, int]
    values: tuple[float, ...]  # V, the plan's worth as a share of the optimum's

    @property
    def num_exact(self) -> int:
        return sum(value == 1 for value in self.values)


def score_meetings(found: RowStatistics) -> Iterator[MeetingScores]:
    """V of the meetings behind the rows, on up to SAMPLE_PER_DIFFICULTY scenarios of each difficulty."""
    for band in BANDS:
        values = []
        for difficulty in sorted(level for level in found.keys if band[0] <= level <= band[1]):
            for key in list(found.keys[difficulty])[:SAMPLE_PER_DIFFICULTY]:
                case: TeamScenario = _generate(key)
                meeting = hold_meeting(PlanGame(case, "full"))
                decision = None if meeting.decision is None else Decision.model_validate(meeting.decision)
                values.append(judge_decision(case, load_table(meeting.reports), decision).value)
        if values:
            yield MeetingScores(band=band, values=tuple(values))


def _generate(key: str) -> Any:
    family, split, seed, index, difficulty = key.split("/")
    return generate_case(family, split, int(seed), int(index), int(difficulty))  # type: ignore[arg-type]


def _play(family: str, cases: Sequence[Any], majority: str) -> dict[str, Sequence[float]]:
    if family == TEAM:
        return _play_team(cases, majority)
    return _play_role(family, cases, majority)


def _play_tasks(family: str, cases: Sequence[Scenario], majority: str) -> dict[str, Sequence[float]]:
    found = SOLO_FAMILIES[family]

    def play(name: str, case: Scenario) -> float:
        return found.verify(case, found.baselines[name](case, random.Random(f"{name}/{case.key}"))).reward

    rewards = {name: [play(name, case) for case in cases] for name in ("random", "constant", "greedy")}
    return {
        **rewards,
        "majority": [found.verify(case, majority).reward for case in cases],
        "oracle": [found.verify(case, json.dumps(found.solve(case))).reward for case in cases],
    }


def _play_role(family: str, cases: Sequence[Scenario], majority: str) -> dict[str, Sequence[float]]:
    if family in TASK_FAMILIES:
        return _play_tasks(family, cases, majority)
    scores = {one.stage: one.sampled for one in score_role_baselines(family, cases, "full")}
    return {
        "random": scores["random"],
        "constant": scores["constant"],
        "majority": [FAMILIES[family].verify(case, majority).reward for case in cases],
        "greedy": scores["heuristic"],
        "oracle": scores["oracle"],
    }


def _play_team(cases: Sequence[TeamScenario], majority: str) -> dict[str, Sequence[float]]:
    weights = TeamRewardWeights()
    played = score_team_baselines(cases, weights, ("random", "greedy", "oracle"))
    scores = {one.stage: one.sampled for one in played}

    def fix(decision: str) -> list[float]:
        return [score_episode(case, _decide_always(case, decision), weights).reward for case in cases]

    return {
        "random": scores["random"],
        "constant": fix(TEAM_CONSTANT),
        "majority": fix(majority),
        "greedy": scores["greedy"],
        "oracle": scores["oracle"],
    }


def _decide_always(case: TeamScenario, decision: str) -> Episode:
    """The episode of experts whose ReconcileGPT decides this whatever they report."""
    play = play_experts(*BEST_HABITS)(case, random.Random(0))
    reports = {seat: report.model_dump_json() for seat, report in play.reports.items()}
    return book_episode(case, reports, decision)

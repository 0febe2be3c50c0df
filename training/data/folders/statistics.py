"""Statistics of the rows of one family and split: lengths, answers, diversity, and what baselines earn."""

import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from evaluation.scoring.baselines import book_episode, play_team_baselines
from evaluation.scoring.team_players import BEST_HABITS, play_experts
from roles.team import RECONCILER, Decision
from scenarios.base import Scenario
from scenarios.team import PlanGame, TeamScenario
from scenarios.team.demonstrations import hold_meeting
from scenarios.team.offers import load_table
from scenarios.team.value import judge_decision
from simulator.reward import TeamRewardWeights, score_episode
from training.data.folders.rows import SOLO_FAMILIES, TEAM, generate_case, read_text

TEXT_COLUMNS = ("brief", "messages", "tools", "answer")
NGRAM_SIZES = (1, 2, 3)
PIECES = re.compile(r"\w+|[^\w\s]")  # words, numbers and single marks: about what a tokenizer makes
SAMPLE_PER_DIFFICULTY = 100  # scenarios that baselines play, the first of the data
BANDS = ((1, 3), (4, 6), (7, 10))  # of difficulty
BASELINES = ("random", "constant", "majority", "greedy", "oracle")
TEAM_CONSTANT = '{"option": "A", "fund": [], "escalate": false}'


@dataclass(slots=True)
class RowStatistics:
    """Counts over rows that are added one by one."""

    num_rows: int = 0
    chars: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))  # by text column
    pieces: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    keys: dict[int, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))  # by difficulty
    briefs: set[str] = field(default_factory=set)
    ngrams: dict[int, set[tuple[str, ...]]] = field(default_factory=lambda: defaultdict(set))  # by size
    num_ngrams: Counter[int] = field(default_factory=Counter)
    # (role, difficulty, field of the answer) -> its values as JSON
    answers: dict[tuple[str, int, str], Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def add(self, row: Mapping[str, Any]) -> None:
        """Count one row; columns as in `rows.SCHEMA`."""
        self.num_rows += 1
        self.keys[row["difficulty"]][row["key"]] = None
        for column in TEXT_COLUMNS:
            text = read_text(row, column)
            self.chars[column].append(len(text))
            self.pieces[column].append(len(PIECES.findall(text)))
        self.briefs.add(row["brief"])
        words = PIECES.findall(row["brief"])
        for size in NGRAM_SIZES:
            grams = list(zip(*(words[start:] for start in range(size)), strict=False))
            self.ngrams[size].update(grams)
            self.num_ngrams[size] += len(grams)
        answer = json.loads(row["answer"])
        for name, value in (answer if isinstance(answer, dict) else {"answer": answer}).items():
            self.answers[row["role"], row["difficulty"], name][json.dumps(value, sort_keys=True)] += 1

    def distinct_share(self, size: int) -> float:
        """Distinct n-grams per n-gram of all briefs, in (0, 1]: distinct-n of arXiv:1510.03055."""
        return len(self.ngrams[size]) / max(1, self.num_ngrams[size])

    def count_answers(self) -> dict[tuple[str, str], Counter[str]]:
        """(role, field of the answer) -> how often it has which value, over all difficulties."""
        merged: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        for (role, _, name), values in self.answers.items():
            merged[role, name] += values
        return dict(merged)

    def majority_answer(self, role: str, difficulty: int) -> dict[str, Any]:
        """Every field's most common value (the first in JSON order among equals)."""
        return {
            name: json.loads(min(values, key=lambda value: (-values[value], value)))
            for (answering, level, name), values in self.answers.items()
            if (answering, level) == (role, difficulty)
        }

    def sample_cases(self, band: tuple[int, int]) -> Iterator[tuple[int, list[Any]]]:
        """Each difficulty of a band with its first SAMPLE_PER_DIFFICULTY scenarios, made again."""
        for difficulty in sorted(level for level in self.keys if band[0] <= level <= band[1]):
            places = [key.split("/") for key in list(self.keys[difficulty])[:SAMPLE_PER_DIFFICULTY]]
            yield (
                difficulty,
                [
                    generate_case(family, split, *map(int, numbers))  # type: ignore[arg-type]
                    for family, split, *numbers in places
                ],
            )


def describe_lengths(lengths: Sequence[int]) -> str:
    """Least / mean / greatest. Example: describe_lengths([3, 5]) == "3 / 4.0 / 5"."""
    return f"{min(lengths)} / {fmean(lengths):.1f} / {max(lengths)}"


def describe_values(values: Counter[str], most: int = 6) -> str:
    """The most common values with their shares, or the range where all are numbers of many values."""
    numbers = [json.loads(value) for value in values.elements()]
    if len(values) > 2 * most and all(isinstance(n, int | float) for n in numbers):
        return f"{len(values)} numbers, {describe_lengths(numbers)}"
    common = sorted(values.items(), key=lambda pair: (-pair[1], pair[0]))
    shown = ", ".join(f"`{value}` {100 * count / len(numbers):.1f} %" for value, count in common[:most])
    return shown if len(common) <= most else f"{len(common)} values, most often {shown}"


def score_baselines(found: RowStatistics) -> Iterator[tuple[tuple[int, int], dict[str, list[float]]]]:
    """Rewards of each baseline by band of difficulty: the verified reward, of team cases the team reward R.

    `majority` gives every answer field its most common value among the data's answers of that difficulty.
    """
    for band in BANDS:
        rewards: dict[str, list[float]] = {name: [] for name in BASELINES}
        for difficulty, cases in found.sample_cases(band):
            family = cases[0].family
            role = RECONCILER if family == TEAM else SOLO_FAMILIES[family].role
            majority = json.dumps(found.majority_answer(role, difficulty))
            played = _play_team(cases, majority) if family == TEAM else _play_role(family, cases, majority)
            for name, values in played.items():
                rewards[name] += values
        if rewards["oracle"]:
            yield band, rewards


def score_meetings(found: RowStatistics) -> Iterator[tuple[tuple[int, int], list[float]]]:
    """V (worth as a share of the optimum's) of the plans of the experts' meetings, by band of difficulty."""
    for band in BANDS:
        values = []
        for _, cases in found.sample_cases(band):
            for case in cases:
                meeting = hold_meeting(PlanGame(case, "full"))
                decision = None if meeting.decision is None else Decision.model_validate(meeting.decision)
                values.append(judge_decision(case, load_table(meeting.reports), decision).value)
        if values:
            yield band, values


def _play_role(family: str, cases: Sequence[Scenario], majority: str) -> dict[str, Sequence[float]]:
    known = SOLO_FAMILIES[family]
    players: dict[str, Callable[[Scenario, random.Random], str]] = {
        **{name: known.baselines[name] for name in ("random", "constant", "greedy")},
        "majority": lambda case, rng: majority,
        "oracle": lambda case, rng: json.dumps(known.solve(case)),
    }
    return {
        name: [known.verify(case, play(case, random.Random(f"{name}/{case.key}"))).reward for case in cases]
        for name, play in players.items()
    }


def _play_team(cases: Sequence[TeamScenario], majority: str) -> dict[str, Sequence[float]]:
    weights = TeamRewardWeights()
    played = play_team_baselines(cases, weights, ("random", "greedy", "oracle"))

    def decide_always(decision: str) -> list[float]:
        """Rewards of experts whose ReconcileGPT decides this whatever they report."""
        rewards = []
        for case in cases:
            play = play_experts(*BEST_HABITS)(case, random.Random(0))
            reports = {seat: report.model_dump_json() for seat, report in play.reports.items()}
            rewards.append(score_episode(case, book_episode(case, reports, decision), weights).reward)
        return rewards

    return {
        **{stage: [one.reward for one in plays] for stage, plays in played.items()},
        "constant": decide_always(TEAM_CONSTANT),
        "majority": decide_always(majority),
    }

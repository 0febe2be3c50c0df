"""Difficulty means something: heuristics fall from level to level, blind play earns little, experts earn 1.

Counts are a fraction of those behind docs/explanation/scenarios.md; a step up stays within its 95 % interval.
"""

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from math import sqrt
from statistics import fmean, variance
from typing import Any

import pytest
from fast_loop import slow_except

from scenarios.base import Scenario
from scenarios.registry import FAMILIES

LEVELS = range(1, 11)
NUM_CASES = 150  # per level
NUM_TRAINED_ON = 200  # cases that blind policies are fitted on
MOST_AT_1, MOST_FROM_5 = 0.35, 0.15
MOST_RANDOM, RANDOM_FROM, NUM_GUESSES = 0.15, 3, 8  # mean reward of random play, first level, guesses a case

Play = Callable[[Scenario], str]


@cache
def draw(name: str, split: str, difficulty: int, count: int) -> list[Scenario]:
    return [FAMILIES[name].generate(split, 0, index, difficulty) for index in range(count)]


def score(name: str, cases: Sequence[Scenario], play: Play) -> list[float]:
    return [FAMILIES[name].verify(case, play(case)).reward for case in cases]


@cache
def greedy_rewards(name: str, difficulty: int) -> list[float]:
    play = FAMILIES[name].baselines["greedy"]
    cases = draw(name, "test", difficulty, NUM_CASES)
    return score(name, cases, lambda case: play(case, random.Random(0)))


def assert_never_rising(by_level: Sequence[Sequence[float]]) -> None:
    """No step up beyond its 95 % interval."""
    for level, (easier, harder) in enumerate(pairwise(by_level), start=1):
        error = sqrt(variance(easier) / len(easier) + variance(harder) / len(harder))
        rise = fmean(harder) - fmean(easier)
        assert rise <= 1.96 * error, f"from difficulty {level} to {level + 1} by {rise:.3f}"


def assert_well_down(by_level: Sequence[Sequence[float]]) -> None:
    """The last level is clearly below the first, and the last three below the first three."""
    first, last = by_level[0], by_level[-1]
    error = sqrt(variance(first) / len(first) + variance(last) / len(last))
    assert fmean(first) - fmean(last) > max(0.08, 1.96 * error)
    assert fmean(fmean(one) for one in by_level[:3]) > fmean(fmean(one) for one in by_level[-3:]) + 0.08


@pytest.mark.parametrize("name", slow_except(FAMILIES, "cost"))
def test_no_level_is_easier_for_the_heuristic(name: str) -> None:
    assert_never_rising([greedy_rewards(name, difficulty) for difficulty in LEVELS])


@pytest.mark.parametrize("name", slow_except(FAMILIES, "cost"))
def test_the_heuristic_falls_well_from_first_to_last_level(name: str) -> None:
    assert_well_down([greedy_rewards(name, difficulty) for difficulty in LEVELS])


def test_a_curve_that_rises_or_stays_would_be_noticed() -> None:
    rng = random.Random(0)
    flat = [[rng.random() for _ in range(NUM_CASES)] for _ in LEVELS]
    with pytest.raises(AssertionError):
        assert_well_down(flat)
    falling = [[float(rng.random() > 0.06 * level) for _ in range(NUM_CASES)] for level in LEVELS]
    assert_never_rising(falling)
    assert_well_down(falling)
    with pytest.raises(AssertionError, match="from difficulty 7 to 8"):
        assert_never_rising([*falling[:7], falling[1], *falling[8:]])


def take_majority(golds: Sequence[Any]) -> Any:
    """Field by field, and inside plans name by name, what is most often right."""
    if isinstance(golds[0], dict):
        names = max(golds, key=len)
        return {name: take_majority([gold[name] for gold in golds if name in gold]) for name in names}
    return json.loads(Counter(map(json.dumps, golds)).most_common(1)[0][0])


def fit_constant(name: str, cases: Sequence[Scenario], candidates: Sequence[str]) -> str:
    """The candidate that earns most on these cases; all are tried on some, the best on all."""

    def earn(text: str, count: int) -> float:
        return fmean(score(name, cases[:count], lambda _: text))

    shortlist = sorted(dict.fromkeys(candidates), key=lambda text: -earn(text, 40))[:10]
    return max(shortlist, key=lambda text: earn(text, len(cases)))


def list_blind_policies(name: str, difficulty: int) -> dict[str, Play]:
    """Policies that know past cases and the form of an answer, and do not look at the case."""
    family = FAMILIES[name]
    known = draw(name, "train", difficulty, NUM_TRAINED_ON)
    golds = [family.solve(case) for case in known]
    majority = json.dumps(take_majority(golds))
    guesses = [family.baselines["random"](case, random.Random(case.index)) for case in known]
    fixed = family.baselines["constant"](known[0], random.Random(0))
    best = fit_constant(name, known, [*map(json.dumps, golds), *guesses, fixed, majority])
    copied = [json.dumps(gold) for gold in golds]
    return {
        "random": lambda case: family.baselines["random"](case, random.Random(case.key)),
        "the family's constant": lambda case: family.baselines["constant"](case, random.Random(0)),
        "the best constant found": lambda _: best,
        "majority": lambda _: majority,
        "copied answer": lambda case: copied[case.index % len(copied)],
        "copied brief": lambda case: case.brief,
    }


@pytest.mark.parametrize("difficulty", [1, 5, 6, 8, 10])
@pytest.mark.parametrize("name", slow_except(FAMILIES, "cost"))
def test_blind_play_earns_little(name: str, difficulty: int) -> None:
    cases = draw(name, "test", difficulty, 2 * NUM_CASES)
    greedy = fmean(greedy_rewards(name, difficulty))
    for policy, play in list_blind_policies(name, difficulty).items():
        rewards = score(name, cases, play)
        mean, error = fmean(rewards), sqrt(variance(rewards) / len(rewards))
        assert mean < greedy, policy
        assert mean <= (MOST_FROM_5 if difficulty >= 5 else MOST_AT_1 + 1.96 * error), policy


@pytest.mark.parametrize("name", slow_except(FAMILIES, "cost"))
def test_random_play_earns_little_from_level_3_on(name: str) -> None:
    """`jobs/test_jobs.py` asks it of the whole jobs, `test_team_players.py` of a chair."""
    family = FAMILIES[name]
    for difficulty in range(RANDOM_FROM, 11):
        rewards = [
            family.verify(case, family.baselines["random"](case, random.Random(f"{seed}/{case.key}"))).reward
            for case in draw(name, "test", difficulty, NUM_CASES)
            for seed in range(NUM_GUESSES)
        ]
        assert fmean(rewards) <= MOST_RANDOM, f"difficulty {difficulty}"


@pytest.mark.parametrize("name", slow_except(FAMILIES, "cost"))
def test_experts_earn_1_at_every_level(name: str) -> None:
    for difficulty in LEVELS:
        for case in draw(name, "test", difficulty, NUM_CASES)[:40]:
            last = FAMILIES[name].demonstrate(case, random.Random(case.index))[-1]
            assert FAMILIES[name].verify(case, last.text).reward == 1.0

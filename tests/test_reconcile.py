"""Reconcile family: a case computed by hand, exact welfare, strict verdicts, blind policies."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import pytest

from roles.team import SPECIALISTS
from scenarios.base import Scenario, ToolCall, ToolError
from scenarios.reconcile import (
    FAMILY,
    LEAST_GAP,
    NUM_OPTIONS,
    assess,
    draw_limit,
    find_deadlock,
    nash_welfare,
)

# A: 80*50*20*32 = 40**4, vetoed by risk. B: 30**4. C: 20*90*60*31 = 3,348,000, so 42. D: 40**4.
FACTS: dict[str, Any] = {
    "options": ["A", "B", "C", "D"],
    "weights": {"cto": 1, "coo": 1, "risk": 1, "cost": 1},
    "limits": {"cto": 10, "coo": 10, "risk": 25, "cost": 10},
    "utilities": {
        "cto": {"A": 80, "B": 30, "C": 20, "D": 40},
        "coo": {"A": 50, "B": 30, "C": 90, "D": 40},
        "risk": {"A": 20, "B": 30, "C": 60, "D": 40},
        "cost": {"A": 32, "B": 30, "C": 31, "D": 40},
    },
}


def make_scenario(**limits: int) -> Scenario:
    facts = FACTS | {"limits": FACTS["limits"] | limits}
    base = FAMILY.generate("train", seed=0, index=0, difficulty=4)
    return replace(base, facts=facts, truth=assess(facts))


def answer(option: str, contested: Sequence[str] = ("A",), score: float = 9, escalate: int = False) -> str:
    return json.dumps({"option": option, "contested": list(contested), "score": score, "escalate": escalate})


def test_hand_computed_case_is_solved() -> None:
    scenario = make_scenario()
    assert scenario.truth["nash"] == {"A": 40, "B": 30, "C": 42, "D": 40}
    assert FAMILY.solve(scenario) == {"option": "C", "contested": ["A"], "score": 9, "escalate": False}
    assert FAMILY.certify(scenario) == (42.0, 42.0)


def test_hand_computed_rewards() -> None:
    scenario = make_scenario()
    best = FAMILY.verify(scenario, answer("C"))
    assert (best.reward, best.exact, best.failure) == (1.0, True, None)
    second = FAMILY.verify(scenario, answer("D", score=7))  # open: 30, 42, 40; mean 112/3; D is 8/14 above it
    assert second.parts == {"graded": pytest.approx(4 / 7), "exact": 0.0, "figures": 1.0}
    assert second.reward == pytest.approx(0.6 * 4 / 7 + 0.1)
    worst = FAMILY.verify(scenario, answer("B", contested=(), score=1, escalate=True))
    assert worst.reward == 0.0
    assert worst.feasible
    sloppy = FAMILY.verify(scenario, answer("C", contested=(), score=9))
    assert sloppy.reward == pytest.approx(0.6 + 0.3 + 0.1 * 2 / 3)
    assert sloppy.failure == "wrong_figures"


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        (answer("A"), "infeasible"),
        (answer("none", escalate=True), "infeasible"),
        (answer("E"), "unknown_id"),
        (answer("C", contested=("Z",)), "unknown_id"),
        (answer("C", contested=("A", "A")), "duplicate_id"),
        (answer("C") + answer("C"), "not_json"),
        (answer("C", score=9.0), "schema"),
        (answer("C", escalate=0), "schema"),
        ("C", "no_answer"),
    ],
)
def test_what_scores_zero(text: str, failure: str) -> None:
    verdict = FAMILY.verify(make_scenario(), text)
    assert (verdict.reward, verdict.failure) == (0.0, failure)


def test_order_of_contested_and_of_keys_does_not_matter() -> None:
    scenario = make_scenario(cto=80)  # cto vetoes all but A, risk vetoes A
    gold = FAMILY.solve(scenario)
    assert gold == {"option": "none", "contested": ["A", "C", "D"], "score": 12, "escalate": True}
    turned = dict(reversed(gold.items())) | {"contested": ["D", "A", "C"]}
    assert FAMILY.verify(scenario, f"So be it: {json.dumps(turned)} (final)").reward == 1.0
    assert FAMILY.certify(scenario) == (0.0, 0.0)


def test_in_a_deadlock_no_option_stands_and_escalation_is_a_figure() -> None:
    scenario = make_scenario(cto=80)
    for option in "ABCD":
        assert FAMILY.verify(scenario, answer(option, escalate=True)).failure == "infeasible"
    hushed = FAMILY.verify(scenario, answer("none", contested="ACD", score=12, escalate=False))
    assert hushed.reward == pytest.approx(0.9 + 0.1 * 2 / 3)


def test_welfare_tool_says_everything_that_the_answer_needs() -> None:
    scenario = make_scenario()
    seen = [FAMILY.call_tool(scenario, ToolCall(name="welfare", arguments={"option": o})) for o in "ABCD"]
    assert seen == [
        "nash 40 min 20 best cto veto risk",
        "nash 30 min 30 best none veto none",
        "nash 42 min 20 best coo risk veto none",
        "nash 40 min 40 best cost veto none",
    ]


@pytest.mark.parametrize(
    "arguments", [{}, {"option": "E"}, {"option": ["A"]}, {"option": "A", "x": 1}, None, {"Option": "A"}]
)
def test_welfare_tool_refuses_other_arguments(arguments: Any) -> None:
    with pytest.raises(ToolError, match="option"):
        FAMILY.call_tool(make_scenario(), ToolCall(name="welfare", arguments=arguments))


def test_demonstration_gives_a_verdict_after_each_observation() -> None:
    steps = FAMILY.demonstrate(make_scenario(), random.Random(0))
    assert [step.text for step in steps] == [
        "",
        "A contested",
        "B ok 30",
        "C ok 42",
        f"D ok 40\n{answer('C')}",
    ]
    assert [step.call and step.call.arguments for step in steps[:-1]] == [
        {"option": option} for option in "ABCD"
    ]


def test_nash_welfare_is_the_exact_floor() -> None:
    assert nash_welfare([80, 50, 20, 32], [1, 1, 1, 1]) == 40
    assert nash_welfare([80, 20], [3, 1]) == 56  # 10,240,000 lies between 56**4 and 57**4
    rng = random.Random(0)
    for _ in range(500):
        row, weights = [rng.randint(10, 99) for _ in range(4)], [rng.randint(1, 3) for _ in range(4)]
        product = prod(utility**weight for utility, weight in zip(row, weights, strict=True))
        root = nash_welfare(row, weights)
        assert root ** sum(weights) <= product < (root + 1) ** sum(weights)


def test_limits_forbid_exactly_as_many_options_as_asked_for() -> None:
    rng = random.Random(0)
    for num_vetoes in range(4):
        for _ in range(50):
            utilities = rng.sample(range(10, 100), 4)
            limit = draw_limit(rng, utilities, num_vetoes)
            assert 10 <= limit <= 99
            assert sum(utility < limit for utility in utilities) == num_vetoes


def test_deadlock_needs_two_favourites() -> None:
    assert find_deadlock({"cto": [9, 1], "coo": [8, 2], "risk": [3, 7], "cost": [1, 2]}) == ["cto", "risk"]
    assert find_deadlock({"cto": [9, 1], "coo": [8, 2]}) == []


@pytest.mark.parametrize("difficulty", range(1, 11))
def test_generated_cases_are_sound(difficulty: int) -> None:
    for index in range(60):
        scenario = FAMILY.generate("train", seed=1, index=index, difficulty=difficulty)
        facts, truth = scenario.facts, scenario.truth
        assert len(facts["options"]) == NUM_OPTIONS[difficulty - 1] == scenario.optimal_tool_calls
        ranked = sorted((truth["nash"][option] for option in truth["open"]), reverse=True)
        assert len(ranked) < 2 or ranked[0] - ranked[1] >= LEAST_GAP[difficulty - 1]
        assert len(set(FAMILY.certify(scenario))) == 1
        for name in SPECIALISTS:
            row = facts["utilities"][name]
            assert len(set(row.values())) == len(row)
            assert all(10 <= utility <= 99 for utility in row.values())
            assert max(row.values()) >= facts["limits"][name]  # nobody vetoes its own favourite


def mean_reward(name: str, difficulty: int, count: int = 400) -> float:
    play = FAMILY.baselines[name]
    scenarios = [FAMILY.generate("test", 0, index, difficulty) for index in range(count)]
    return sum(FAMILY.verify(s, play(s, random.Random(s.index))).reward for s in scenarios) / count


def test_blind_policies_stay_low_and_the_brief_alone_does_not_suffice() -> None:
    blind = [mean_reward(name, 1) for name in ("random", "constant")]
    assert max(blind) < 0.4
    assert max(blind) + 0.2 < mean_reward("greedy", 1) < 0.9
    assert max(mean_reward(name, 8) for name in ("random", "constant")) < 0.25


def test_a_fixed_policy_finds_higher_difficulty_harder() -> None:
    assert mean_reward("greedy", 6) < mean_reward("greedy", 4) - 0.03 < mean_reward("greedy", 1) - 0.06

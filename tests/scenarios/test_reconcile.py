"""Reconcile family: a case computed by hand, exact welfare, strict verdicts, blind policies."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from roles.team import SPECIALISTS
from scenarios.base import Scenario, ToolCall, ToolError
from scenarios.reconcile import FAMILY, FAVOURED_LOSES, LEAST_GAP, NUM_OPTIONS, VETO_DECIDES, assess
from scenarios.world.bargaining import draw_limit, find_deadlock
from scenarios.world.fairness import assess_fairness

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


def make_scenario(difficulty: int = 2, **limits: int) -> Scenario:
    facts = FACTS | {"limits": FACTS["limits"] | limits}
    base = FAMILY.generate("train", seed=0, index=0, difficulty=difficulty)
    truth = assess(facts) | ({"fairness": assess_fairness(facts)} if difficulty >= 3 else {})
    return replace(base, facts=facts, truth=truth)


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
        (answer("C") + answer("C"), "trailing_text"),
        (answer("C", score=9.0), "schema"),
        (answer("C", escalate=0), "schema"),
        ("C", "no_answer"),
    ],
)
def test_what_scores_zero(text: str, failure: str) -> None:
    verdict = FAMILY.verify(make_scenario(), text)
    assert (verdict.reward, verdict.failure) == (0.0, failure)


def test_from_difficulty_3_the_parts_say_how_fair_the_choice_is() -> None:
    scenario = make_scenario(difficulty=4)
    second = FAMILY.verify(scenario, answer("D", contested=("A", "B"), score=7, escalate=True))
    assert second.parts == {
        "graded": pytest.approx(4 / 7),
        "exact": 0.0,
        "figures": pytest.approx(1 / 3),
        "fairness": pytest.approx(40 / 42),
        "satisfaction": 0.44,  # best of the open options: cto 40, coo 90, risk 60, cost 40; coo has 40 of 90
        "conflicts": pytest.approx(2 / 3),
        "escalation": 0.0,
    }
    assert second.reward == pytest.approx(0.6 * 4 / 7 + 0.1 / 3)
    assert FAMILY.verify(scenario, answer("C")).parts["satisfaction"] == 0.5  # cto has 20 of 40
    lost = make_scenario(difficulty=4, cto=80)
    gold = FAMILY.verify(lost, json.dumps(FAMILY.solve(lost)))
    assert (gold.reward, gold.parts["fairness"], gold.parts["satisfaction"]) == (1.0, 1.0, 0.0)


def test_from_difficulty_5_only_a_wholly_right_answer_is_exact() -> None:
    scenario = make_scenario(difficulty=5)
    assert FAMILY.verify(scenario, answer("C")).reward == 1.0
    sloppy = FAMILY.verify(scenario, answer("C", contested=()))
    assert (sloppy.exact, sloppy.failure) == (False, "wrong_figures")
    assert sloppy.reward == pytest.approx(0.6 + 0.1 * 2 / 3)
    # open 30, 42, 40: the better of two blind picks is worth (30 + 3 * 40 + 5 * 42) / 9 = 40
    assert FAMILY.verify(scenario, answer("D", score=7)).reward == pytest.approx(0.1)


def test_order_of_contested_and_of_keys_does_not_matter() -> None:
    scenario = make_scenario(cto=80)  # cto vetoes all but A, risk vetoes A
    gold = FAMILY.solve(scenario)
    assert gold == {"option": "none", "contested": ["A", "C", "D"], "score": 12, "escalate": True}
    turned = dict(reversed(gold.items())) | {"contested": ["D", "A", "C"]}
    assert FAMILY.verify(scenario, f"So be it: {json.dumps(turned)} \n").reward == 1.0
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


def test_from_difficulty_3_the_tool_tells_shares_and_places() -> None:
    scenario = make_scenario(difficulty=3)
    seen = [FAMILY.call_tool(scenario, ToolCall(name="welfare", arguments={"option": o})) for o in "ABCD"]
    assert seen == [
        "nash 40 min 20 best cto veto risk",
        "nash 30 min 30 share 33 kalai 3 leximin 2 best none veto none",  # coo: 30 of 90
        "nash 42 min 20 share 50 kalai 1 leximin 3 best coo risk veto none",
        "nash 40 min 40 share 44 kalai 2 leximin 1 best cost veto none",
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
        assert len(facts["options"]) == NUM_OPTIONS[difficulty - 1]
        asked = len(truth["open"] or truth["contested"]) if difficulty >= 5 else len(facts["options"])
        assert scenario.optimal_tool_calls == asked
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
    assert max(mean_reward(name, 8) for name in ("random", "constant")) < 0.15


@pytest.mark.parametrize("difficulty", [3, 10])
def test_the_more_favoured_option_loses_as_often_as_it_should(difficulty: int) -> None:
    lost = cases = deadlocks = 0
    for index in range(300):
        truth = FAMILY.generate("train", seed=3, index=index, difficulty=difficulty).truth
        deadlocks += not truth["open"]
        if truth["open"]:
            cases += 1
            best = {option: len(truth["best"][option]) for option in truth["open"]}
            lost += best[truth["option"]] < max(best.values())
    assert abs(lost / cases - FAVOURED_LOSES[difficulty - 1]) < 0.09
    assert 0.02 < deadlocks / 300 < 0.09


@pytest.mark.parametrize("difficulty", [1, 3, 5, 8, 10])
def test_a_vetoed_option_is_fairer_as_often_as_is_wanted(difficulty: int) -> None:
    decided = misled = 0
    for index in range(300):
        scenario = FAMILY.generate("test", 0, index, difficulty)
        nash, choice = scenario.truth["nash"], scenario.truth["option"]
        if choice == "none":
            continue
        fairest = max(nash, key=nash.__getitem__)
        decided += 1
        misled += nash[fairest] > nash[choice]
        if nash[fairest] > nash[choice]:
            assert scenario.truth["veto"][fairest]
            assert FAMILY.verify(scenario, answer(fairest, ())).reward == 0.0
    wanted = VETO_DECIDES[difficulty - 1]
    assert misled / decided < 0.25 if difficulty == 1 else abs(misled / decided - wanted) < 0.09


def test_the_honest_player_asks_about_two_and_reads_vetoes() -> None:
    scenario = make_scenario()  # favourites: A (vetoed), C of two, B and D of nobody
    said = json.loads(FAMILY.baselines["honest"](scenario, random.Random(0)))
    assert said == {"option": "C", "contested": ["A"], "score": 9, "escalate": False}
    rewards = {
        name: [
            FAMILY.verify(case, FAMILY.baselines[name](case, random.Random(0))).reward
            for case in (FAMILY.generate("test", 0, index, 8) for index in range(100))
        ]
        for name in ("greedy", "honest")
    }
    assert min(sum(rewards["honest"]), 99) > sum(rewards["greedy"]) + 10


def test_certify_raises_where_a_stated_place_is_wrong() -> None:
    scenario = make_scenario(difficulty=4)
    assert FAMILY.certify(scenario) == (42.0, 42.0)
    for name, wrong in (("kalai", {"B": 1, "C": 2, "D": 3}), ("leximin", {"B": 1, "C": 3, "D": 2})):
        fairness = scenario.truth["fairness"] | {name: wrong}
        with pytest.raises(RuntimeError, match=name):
            FAMILY.certify(replace(scenario, truth={**scenario.truth, "fairness": fairness}))


def test_a_fixed_policy_finds_higher_difficulty_harder() -> None:
    assert mean_reward("greedy", 6) < mean_reward("greedy", 4) - 0.03 < mean_reward("greedy", 1) - 0.06

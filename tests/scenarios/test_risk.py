"""Risk family: exact exposures, unique optimum, strict and graded verification, tools, demonstrations."""

import json
import random
import re
from collections.abc import Iterator
from itertools import combinations, product
from typing import Any

import pytest

from roles.risk import ROLE
from scenarios.base import Scenario, ToolCall, ToolError
from scenarios.briefs.sectors import SECTORS
from scenarios.risk import FAMILY, MISLED_SHARE, buy_greedily, rephrase, score_loss
from scenarios.world.threats import build_threats, exposures, total_exposure

DIFFICULTIES = range(1, 11)

FACTS: dict[str, Any] = {
    "impacts": {"A": 80, "B": 60, "C": 90},
    "edges": [
        ["entry", "a1", 50], ["a1", "A", 60],  # .30 * 80 = 24
        ["entry", "b1", 80], ["b1", "B", 70],  # .56 * 60 = 33.6
        ["entry", "c1", 90], ["c1", "C", 55],  # .495 * 90 = 44.55
    ],
    "controls": {
        "K1": {"cost": 20, "edge": 1, "to": 10},  # A falls to .05 * 80 = 4: saves 20
        "K2": {"cost": 30, "edge": 2, "to": 20},  # B falls to .14 * 60 = 8.4: saves 25
        "K3": {"cost": 40, "edge": 5, "to": 11},  # C falls to .099 * 90 = 8.91: saves 36
    },
    "budget": 60,
    "score_step": 8,
}  # fmt: skip
# Affordable: none 101, K1 81, K2 76, K3 65, K1 K2 56, K1 K3 45 (K2 K3 costs 70); their mean is 424 / 6.
GOLD = {"top_risks": ["C", "B"], "controls": ["K1", "K3"], "residual": 45, "score": 5}
CASE = Scenario(
    family="risk",
    split="train",
    seed=0,
    index=0,
    difficulty=1,
    role="risk",
    brief="Bank case. Assets A B C. Controls K1 20 K2 30 K3 40. Budget 60.",
    facts=FACTS,
    truth={**GOLD, "reference": 424 / 6},
    optimal_tool_calls=3,
)


def scenarios(difficulty: int, count: int, seed: int = 0) -> Iterator[Scenario]:
    return (FAMILY.generate("train", seed, index, difficulty) for index in range(count))


def reward(scenario: Scenario, answer: Any) -> float:
    return FAMILY.verify(scenario, json.dumps(answer)).reward


def mean_of(name: str, cases: list[Scenario], part: str = "") -> float:
    """Mean reward of a baseline, or of one part of its verdicts."""
    rng = random.Random(0)
    verdicts = [FAMILY.verify(case, FAMILY.baselines[name](case, rng)) for case in cases]
    return sum(verdict.parts.get(part, 0.0) if part else verdict.reward for verdict in verdicts) / len(cases)


def test_exposures_of_a_small_case_by_hand() -> None:
    assert exposures(FACTS) == {"A": 24, "B": 33, "C": 44}
    assert total_exposure(FACTS) == 101
    assert total_exposure(FACTS, ("K1", "K3")) == 4 + 33 + 8


def test_shared_steps_by_hand_make_savings_overlap() -> None:
    threats = {
        "impacts": {"A": 90},
        "edges": [["entry", "s1", 50], ["s1", "s2", 60], ["s1", "s3", 50], ["s2", "A", 50], ["s3", "A", 40]],
        "controls": {"K1": {"cost": 9, "edge": 0, "to": 10}, "K2": {"cost": 9, "edge": 3, "to": 10}},
    }
    assert total_exposure(threats) == 19  # .5 * (1 - .7 * .8) * 90 = 19.8
    assert total_exposure(threats, ("K1",)) == 3  # .1 * .44 * 90 = 3.96
    assert total_exposure(threats, ("K2",)) == 11  # .5 * (1 - .94 * .8) * 90 = 11.16
    assert total_exposure(threats, ("K1", "K2")) == 2  # .1 * .248 * 90 = 2.232: saves 17, not 16 + 8


@pytest.mark.parametrize("difficulty", [3, 4, 5])
def test_exposures_agree_with_enumerating_every_outcome(difficulty: int) -> None:
    rng = random.Random(difficulty)
    for _ in range(2):
        threats = build_threats(rng, difficulty)
        edges = threats["edges"]
        mass = dict.fromkeys(threats["impacts"], 0)
        for outcome in product((True, False), repeat=len(edges)):
            weight, reached = 1, {"entry"}
            for (source, target, likelihood), holds in zip(edges, outcome, strict=True):
                weight *= likelihood if holds else 100 - likelihood
                if holds and source in reached:
                    reached.add(target)
            for asset in reached & mass.keys():
                mass[asset] += weight
        expected = {name: threats["impacts"][name] * mass[name] // 100 ** len(edges) for name in mass}
        assert exposures(threats) == expected


def test_verdicts_of_a_small_case_by_hand() -> None:
    assert reward(CASE, GOLD) == 1.0
    # K1 K2: avoided (424/6 - 56) / (424/6 - 45) = 4/7, graded .7 * 4/7 + .3 = .7
    second = FAMILY.verify(CASE, json.dumps({**GOLD, "controls": ["K1", "K2"], "residual": 56, "score": 7}))
    assert second.reward == pytest.approx(0.6 * 0.7 + 0.1)
    assert second.failure == "suboptimal"
    # one of two top risks is no better than blind among three assets
    assert reward(CASE, {**GOLD, "top_risks": ["C", "A"]}) == pytest.approx(0.6 * 0.7 + 0.1)
    assert reward(CASE, {**GOLD, "top_risks": ["B", "C"]}) == pytest.approx(0.6 + 0.1)  # right, wrong order
    assert reward(CASE, {**GOLD, "residual": 44}) == pytest.approx(0.95)
    over = FAMILY.verify(CASE, json.dumps({**GOLD, "controls": ["K2", "K3"], "residual": 40}))
    assert (over.reward, over.feasible, over.failure) == (0.0, False, "infeasible")
    assert reward(CASE, {**GOLD, "controls": ["K3", "K1"]}) == 1.0  # a set has no order


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
def test_gold_scores_exactly_one_and_perturbed_answers_less(difficulty: int) -> None:
    for scenario in scenarios(difficulty, 150 if difficulty <= 3 else 25):
        gold = FAMILY.solve(scenario)
        verdict = FAMILY.verify(scenario, "done\n" + json.dumps(gold))
        assert verdict.reward == 1.0
        assert verdict.exact
        assert verdict.failure is None
        for wrong in (
            {**gold, "top_risks": gold["top_risks"][::-1]},
            {**gold, "controls": gold["controls"][1:]},
            {**gold, "controls": [*gold["controls"], "K9"]},
            {**gold, "controls": [*gold["controls"], gold["controls"][0]]},
            {**gold, "residual": gold["residual"] + 1},
            {**gold, "score": gold["score"] - 1},
        ):
            assert reward(scenario, wrong) < 1.0


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
def test_optimum_is_unique_and_found_through_the_tool(difficulty: int) -> None:
    for scenario in scenarios(difficulty, 10):
        names = list(scenario.facts["controls"])
        budget = scenario.facts["budget"]
        found: dict[int, list[list[str]]] = {}
        for size in range(len(names) + 1):
            for chosen in combinations(names, size):
                call = ToolCall(name="residual", arguments={"controls": list(chosen)})
                words = FAMILY.call_tool(scenario, call).split()
                assert ("over" in words) == (int(words[3]) > budget)
                if int(words[3]) <= budget:
                    found.setdefault(int(words[1]), []).append(list(chosen))
        assert found[min(found)] == [scenario.truth["controls"]]
        assert len(set(exposures(scenario.facts).values())) == len(scenario.facts["impacts"])


def test_certificate_agrees() -> None:
    for difficulty in (1, 3, 4, 6, 8, 10):
        for scenario in scenarios(difficulty, 12):
            value, second = FAMILY.certify(scenario)
            assert value == second == scenario.truth["residual"]


HOSTILE = [
    "", "{", "}{", "null", "[]", "{}", "NaN", '{"top_risks": NaN}', "\x00{\ud800}", "9" * 30_000,
    '{"a":' * 5000,
    '{"top_risks": ["\\ud800", "C"], "controls": [], "residual": 45, "score": 5}',
    '{"top_risks": "CB", "controls": ["K1"], "residual": 45, "score": 5}',
    '{"top_risks": ["C", "B"], "controls": ["K1", "K3"], "residual": 45.0, "score": 5}',
    '{"top_risks": ["C", "B"], "controls": ["K1", "K3"], "residual": true, "score": 5}',
    '{"top_risks": ["C", "C"], "controls": ["K1", "K3"], "residual": 45, "score": 5}',
    '{"top_risks": ["C", "B", "A"], "controls": ["K1", "K3"], "residual": 45, "score": 5}',
    '{"top_risks": ["C", "B"], "controls": ["K1", "K1", "K3"], "residual": 45, "score": 5}',
    '{"top_risks": ["C", "B"], "controls": ["K1", "K7"], "residual": 45, "score": 5}',
    '{"top_risks": ["C", "B"], "controls": ["K1", "K3"], "residual": 45, "score": 5, "why": 1}',
    '{"top_risks": ["C", "B"], "controls": ["K1", "K3"], "residual": 45, "residual": 45, "score": 5}',
    '{"top_risks": ["C", "B"], "controls": ["K1", "K3"], "residual": ' + "9" * 5000 + ', "score": 5}',
    json.dumps(GOLD) + json.dumps({**GOLD, "controls": []}),
    CASE.brief,
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_answers_score_zero(text: str) -> None:
    verdict = FAMILY.verify(CASE, text)
    assert verdict.reward == 0.0
    assert verdict.failure
    assert verdict.explanation.encode()


def test_damaged_gold_never_raises() -> None:
    rng = random.Random(0)
    gold = json.dumps(GOLD)
    for _ in range(2000):
        text = list(gold)
        for _ in range(rng.randint(1, 4)):
            text[rng.randrange(len(text))] = rng.choice('{}[]",:0123456789ABCK \ud800\x00e-')
        verdict = FAMILY.verify(CASE, "".join(text))
        assert 0.0 <= verdict.reward <= 1.0


def test_tools_of_a_small_case_by_hand() -> None:
    assert FAMILY.call_tool(CASE, ToolCall(name="exposures", arguments={})) == "A 24 B 33 C 44"
    assert FAMILY.call_tool(CASE, ToolCall(name="savings", arguments={})) == "K1 20 K2 25 K3 36"
    call = ToolCall(name="residual", arguments={"controls": ["K3", "K1"]})
    assert FAMILY.call_tool(CASE, call) == "residual 45 cost 60 score 5"
    call = ToolCall(name="residual", arguments={"controls": ["K2", "K3"]})
    assert FAMILY.call_tool(CASE, call) == "residual 40 cost 70 score 5 over budget"
    call = ToolCall(name="residual", arguments={"controls": []})
    assert FAMILY.call_tool(CASE, call) == "residual 101 cost 0 score 12"
    assert score_loss(FACTS, 1000) == 12


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("exposure", {}),
        ("", {}),
        ("exposures", {"asset": "A"}),
        ("savings", None),
        ("savings", []),
        ("residual", {}),
        ("residual", ["K1"]),
        ("residual", {"controls": None}),
        ("residual", {"controls": "K1"}),
        ("residual", {"controls": {"K1": 1}}),
        ("residual", {"controls": ["K4"]}),
        ("residual", {"controls": ["K1", "K1"]}),
        ("residual", {"controls": [["K1"]]}),
        ("residual", {"controls": [1, None, {}]}),
        ("residual", {"controls": ["K1"], "extra": 1}),
    ],
)
def test_tools_refuse_hostile_arguments(name: str, arguments: Any) -> None:
    with pytest.raises(ToolError, match=r"\w"):
        FAMILY.call_tool(CASE, ToolCall(name=name, arguments=arguments))


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
def test_demonstrations_replay_to_the_optimum(difficulty: int) -> None:
    rng = random.Random(difficulty)
    for scenario in scenarios(difficulty, 20):
        *calls, last = FAMILY.demonstrate(scenario, rng)
        observations = [FAMILY.call_tool(scenario, step.call) for step in calls if step.call]
        assert len(observations) == len(calls) == scenario.optimal_tool_calls
        assert last.call is None
        assert FAMILY.verify(scenario, last.text).reward == 1.0
        final = json.loads(last.text.split("\n")[1])
        assert observations[-1].startswith(f"residual {final['residual']} cost ")
        assert observations[-1].endswith(f" score {final['score']}")
        assert set(final) == set(ROLE.answer.model_fields)
        assert {step.call.name for step in calls if step.call} <= {tool.name for tool in ROLE.tools}


@pytest.mark.parametrize("difficulty", [1, 2, 3, 5])
def test_baselines_are_ordered(difficulty: int) -> None:
    cases = list(scenarios(difficulty, 300))
    mean = {name: mean_of(name, cases) for name in FAMILY.baselines}
    assert mean["random"] < mean["greedy"] < 1.0
    assert mean["constant"] < 0.25
    assert mean["constant"] < mean["greedy"]


def test_no_constant_answer_comes_near_the_greedy_one() -> None:
    cases = list(scenarios(1, 300))
    greedy = mean_of("greedy", cases)
    for size in range(4):
        for controls in combinations(["K1", "K2", "K3"], size):
            answer = {"top_risks": ["A", "B"], "controls": controls, "residual": 45, "score": 5}
            assert sum(reward(case, answer) for case in cases) / 300 < greedy / 2


@pytest.mark.parametrize("difficulty", [4, 7])
def test_the_obvious_purchase_misses_as_often_as_it_should(difficulty: int) -> None:
    cases = list(scenarios(difficulty, 200))
    missed = sum(
        total_exposure(case.facts, buy_greedily(case.facts)) > case.truth["residual"] for case in cases
    )
    assert abs(missed / len(cases) - MISLED_SHARE[difficulty - 1]) < 0.1


def test_difficulty_is_harder_for_the_greedy_policy() -> None:
    plan = ((1, 400), (5, 400), (9, 150))
    exact = [mean_of("greedy", list(scenarios(difficulty, count)), "exact") for difficulty, count in plan]
    assert exact[0] > exact[1] > exact[2]


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
def test_brief_is_names_costs_and_budget_only(difficulty: int) -> None:
    sectors = "|".join(sector.capitalize() for sector in SECTORS)
    for scenario in scenarios(difficulty, 20):
        costs = ((name, control["cost"]) for name, control in scenario.facts["controls"].items())
        controls = " ".join(f"{name} {cost}" for name, cost in costs)
        pattern = rf"({sectors}) case\. Assets A B C[ D-F]*\. Controls {controls}\. Budget \d\d\."
        assert re.fullmatch(pattern, rephrase(scenario, "lines"))
        assert json.loads(json.dumps(scenario.facts)) == scenario.facts
        assert json.loads(json.dumps(scenario.truth)) == scenario.truth


def test_numbers_have_two_digits_at_low_difficulty() -> None:
    for difficulty in (1, 2, 3):
        for scenario in scenarios(difficulty, 100):
            for step in FAMILY.demonstrate(scenario, random.Random(0)):
                seen = FAMILY.call_tool(scenario, step.call) if step.call else step.text
                assert all(int(number) <= 99 for number in re.findall(r"\d+", seen))


def test_savings_add_up_at_low_difficulty_and_overlap_later() -> None:
    def lost_to_overlap(scenario: Scenario) -> int:
        before = total_exposure(scenario.facts)
        names = list(scenario.facts["controls"])
        alone = sum(before - total_exposure(scenario.facts, (name,)) for name in names)
        return alone - (before - total_exposure(scenario.facts, names))

    assert all(lost_to_overlap(scenario) == 0 for scenario in scenarios(3, 100))
    assert sum(lost_to_overlap(scenario) > 0 for scenario in scenarios(6, 50)) > 25


def test_generation_is_pure_and_splits_do_not_share_scenarios() -> None:
    train, again = list(scenarios(2, 100)), list(scenarios(2, 100))
    assert train == again
    test = [FAMILY.generate("test", 0, index, 2) for index in range(100)]
    other_seed = list(scenarios(2, 100, seed=1))
    briefs = [{scenario.brief for scenario in part} for part in (train, test, other_seed)]
    assert len(briefs[0] & briefs[1]) < 5
    assert len(briefs[0] & briefs[2]) < 5
    assert train[3].key == "risk/train/0/3/2"
    with pytest.raises(ValueError, match="difficulty"):
        FAMILY.generate("train", 0, 0, 11)

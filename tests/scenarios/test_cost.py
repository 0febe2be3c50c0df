"""Cost family: exact totals, unique optimum, strict and graded verification, tools, demonstrations."""

import json
import random
import re
from collections.abc import Iterator
from itertools import product
from statistics import fmean
from typing import Any

import pytest

from roles.cost import ROLE
from scenarios.base import Scenario, ToolCall, ToolError
from scenarios.briefs.sectors import SECTORS
from scenarios.cost import FAMILY, ONE_UPGRADE_UP_TO, reach_alone, repair_greedily, rephrase
from scenarios.headroom import BETTER_OF_TWO_FROM
from scenarios.world.prices import best_total, build_prices, plan_at, price_all_plans, price_plan

DIFFICULTIES = range(1, 11)

# Upgrades to tier 2, 3: S1 +7 for 2 and +19 for 5; S2 +3 for 1 and +16 for 4; S3 +8 for 3 and +12 for 4.
FACTS: dict[str, Any] = {
    "items": {
        "S1": [[12, 3], [19, 5], [31, 8]],
        "S2": [[14, 1], [17, 2], [30, 5]],
        "S3": [[10, 2], [18, 5], [22, 6]],
    },
    "floor": 9,
    "discount": None,
    "budget": None,
}
# Base: total 36, quality 6. Three more points: S3 tier 2 for +8 (44).
GOLD = {"tiers": {"S1": 1, "S2": 1, "S3": 2}, "total": 44}


def by_hand(floor: int, reference: float) -> Scenario:
    return Scenario(
        family="cost",
        split="train",
        seed=0,
        index=0,
        difficulty=1,
        role="cost",
        brief="",
        facts={**FACTS, "floor": floor},
        truth={**GOLD, "reference": reference},
        optimal_tool_calls=1,
    )


CASE = by_hand(9, 60.0)


def scenarios(difficulty: int, count: int, seed: int = 0) -> Iterator[Scenario]:
    return (FAMILY.generate("train", seed, index, difficulty) for index in range(count))


def reward(scenario: Scenario, answer: Any) -> float:
    return FAMILY.verify(scenario, json.dumps(answer)).reward


def price(scenario: Scenario, tiers: Any) -> str:
    return FAMILY.call_tool(scenario, ToolCall(name="price", arguments={"tiers": tiers}))


def mean_of(name: str, cases: list[Scenario], part: str = "") -> float:
    """Mean reward of a baseline, or of one part of its verdicts."""
    rng = random.Random(0)
    verdicts = [FAMILY.verify(case, FAMILY.baselines[name](case, rng)) for case in cases]
    return sum(verdict.parts.get(part, 0.0) if part else verdict.reward for verdict in verdicts) / len(cases)


def test_totals_of_a_small_case_by_hand() -> None:
    assert price_plan(FACTS, (1, 1, 1)) == (36, 6)
    assert price_plan(FACTS, (2, 3, 1)) == (59, 12)
    assert best_total(FACTS) == 44
    assert best_total({**FACTS, "floor": 10}) == 47  # S3 tier 2 and S2 tier 2 (+11); S3 tier 3 alone is +12
    assert best_total({**FACTS, "floor": 19}) == 83  # everything at tier 3


def test_discount_by_hand() -> None:
    facts = {**FACTS, "discount": {"count": 2, "off": 5}}
    assert price_plan(facts, (1, 1, 2)) == (44 - 10, 9)
    assert price_plan(facts, (2, 2, 2)) == (54 - 15, 12)
    assert price_plan(facts, (1, 2, 3)) == (51, 11)
    assert best_total({**facts, "floor": 12}) == 39


def test_all_plans_are_priced_one_by_one() -> None:
    for difficulty in (1, 4, 6, 7):
        prices = build_prices(random.Random(difficulty), difficulty)
        count = len(prices["items"])
        totals, qualities = price_all_plans(prices)
        plans = list(product((1, 2, 3), repeat=count))
        assert len(totals) == len(qualities) == 3**count
        for index in range(0, len(plans), 7):
            assert plan_at(index, count) == plans[index]
            assert (totals[index], qualities[index]) == price_plan(prices, plans[index])


def test_verdicts_of_a_small_case_by_hand() -> None:
    assert reward(CASE, GOLD) == 1.0
    assert reward(CASE, {**GOLD, "total": 45}) == pytest.approx(0.9)
    # S3 at tier 3: total 48, graded (60 - 48) / (60 - 44) = .75
    second = FAMILY.verify(CASE, json.dumps({"tiers": {"S1": 1, "S2": 1, "S3": 3}, "total": 48}))
    assert second.reward == pytest.approx(0.6 * 0.75 + 0.1)
    assert (second.exact, second.feasible, second.failure) == (False, True, "suboptimal")
    dear = FAMILY.verify(CASE, json.dumps({"tiers": {"S1": 3, "S2": 3, "S3": 3}, "total": 83}))
    assert dear.parts == {"graded": 0.0, "exact": 0.0, "figures": 1.0}
    short = FAMILY.verify(CASE, json.dumps({"tiers": {"S1": 1, "S2": 1, "S3": 1}, "total": 36}))
    assert (short.reward, short.feasible, short.failure) == (0.0, False, "infeasible")


def test_budget_makes_a_plan_infeasible() -> None:
    scenario = next(case for case in scenarios(5, 20) if case.facts["budget"] < 100)
    dearest = dict.fromkeys(scenario.facts["items"], 3)
    assert price(scenario, dearest).endswith("over budget")
    assert FAMILY.verify(scenario, json.dumps({"tiers": dearest, "total": 1})).failure == "infeasible"


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
def test_gold_scores_exactly_one_and_perturbed_answers_less(difficulty: int) -> None:
    for scenario in scenarios(difficulty, 150 if difficulty <= 3 else 25):
        gold = FAMILY.solve(scenario)
        verdict = FAMILY.verify(scenario, "done\n" + json.dumps(gold))
        assert verdict.reward == 1.0
        assert verdict.exact
        assert verdict.failure is None
        wrong: list[Any] = [{**gold, "total": gold["total"] + 1}, {**gold, "tiers": {}}]
        for item, tier in gold["tiers"].items():
            for other in {1, 2, 3} - {tier}:
                wrong.append({**gold, "tiers": {**gold["tiers"], item: other}})
        assert all(reward(scenario, answer) < 1.0 for answer in wrong)


@pytest.mark.parametrize("difficulty", range(1, 8))
def test_optimum_is_unique_and_found_through_the_tool(difficulty: int) -> None:
    for scenario in scenarios(difficulty, 10 if difficulty <= 3 else 2):
        items = list(scenario.facts["items"])
        found: dict[int, list[dict[str, int]]] = {}
        for tiers in product((1, 2, 3), repeat=len(items)):
            plan = dict(zip(items, tiers, strict=True))
            words = price(scenario, plan).split()
            if words[4:] == ["ok"]:
                found.setdefault(int(words[1]), []).append(plan)
        assert found[min(found)] == [scenario.truth["tiers"]]
        assert best_total(scenario.facts) == min(found)
        totals = [total for total, plans in found.items() for _ in plans]
        picks = 2 if difficulty >= BETTER_OF_TWO_FROM else 1
        blind = fmean(min(picked) for picked in product(totals, repeat=picks))
        assert scenario.truth["reference"] == pytest.approx(blind)


def test_certificate_agrees() -> None:
    for difficulty in (1, 3, 4, 6, 8, 10):
        for scenario in scenarios(difficulty, 10):
            value, second = FAMILY.certify(scenario)
            assert value == second == scenario.truth["total"]


HOSTILE = [
    "", "{", "}{", "null", "[]", "{}", "NaN", '{"tiers": NaN}', "\x00{\ud800}", "9" * 30_000, '{"a":' * 5000,
    '{"tiers": {"S1": 1, "S2": 1, "S3": 2, "\\ud800": 1}, "total": 44}',
    '{"tiers": {"S1": 1, "S2": 1}, "total": 44}',
    '{"tiers": {"S1": 1, "S2": 1, "S3": 2, "S4": 1}, "total": 44}',
    '{"tiers": {"S1": 0, "S2": 1, "S3": 2}, "total": 44}',
    '{"tiers": {"S1": -1, "S2": 1, "S3": 2}, "total": 44}',
    '{"tiers": {"S1": 4, "S2": 1, "S3": 2}, "total": 44}',
    '{"tiers": {"S1": true, "S2": 1, "S3": 2}, "total": 44}',
    '{"tiers": {"S1": 1.0, "S2": 1, "S3": 2}, "total": 44}',
    '{"tiers": {"S1": "1", "S2": 1, "S3": 2}, "total": 44}',
    '{"tiers": [1, 1, 2], "total": 44}',
    '{"tiers": {"S1": 1, "S2": 1, "S3": 2}}',
    '{"tiers": {"S1": 1, "S2": 1, "S3": 2}, "total": 44.0}',
    '{"tiers": {"S1": 1, "S2": 1, "S3": 2}, "total": 44, "why": 1}',
    '{"tiers": {"S1": 3, "S1": 1, "S2": 1, "S3": 2}, "total": 44}',
    '{"tiers": {"S1": ' + "1" * 5000 + ', "S2": 1, "S3": 2}, "total": 44}',
    '{"tiers": {"S1": ' + "1" * 4000 + ', "S2": 1, "S3": 2}, "total": 44}',
    json.dumps(GOLD) + json.dumps({**GOLD, "total": 45}),
    "Energy case. Quality at least 9.\nS1 1 12 q3 2 19 q5 3 31 q8",
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
            text[rng.randrange(len(text))] = rng.choice('{}[]",:0123456789S \ud800\x00e-')
        verdict = FAMILY.verify(CASE, "".join(text))
        assert 0.0 <= verdict.reward <= 1.0


def test_tool_of_a_small_case_by_hand() -> None:
    assert price(CASE, {"S1": 1, "S2": 1, "S3": 2}) == "total 44 quality 9 ok"
    assert price(CASE, {"S3": 1, "S2": 1, "S1": 1}) == "total 36 quality 6 short 3"


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("cost", {"tiers": GOLD["tiers"]}),
        ("", {}),
        ("price", None),
        ("price", []),
        ("price", {}),
        ("price", {"tiers": GOLD["tiers"], "extra": 1}),
        ("price", {"tiers": None}),
        ("price", {"tiers": [1, 1, 2]}),
        ("price", {"tiers": "S1"}),
        ("price", {"tiers": {}}),
        ("price", {"tiers": {"S1": 1, "S2": 1}}),
        ("price", {"tiers": {"S1": 1, "S2": 1, "S4": 1}}),
        ("price", {"tiers": {"S1": 1, "S2": 1, "S3": 4}}),
        ("price", {"tiers": {"S1": 1, "S2": 1, "S3": 0}}),
        ("price", {"tiers": {"S1": 1, "S2": 1, "S3": True}}),
        ("price", {"tiers": {"S1": 1, "S2": 1, "S3": 1.0}}),
        ("price", {"tiers": {"S1": 1, "S2": 1, "S3": [1]}}),
    ],
)
def test_tool_refuses_hostile_arguments(name: str, arguments: Any) -> None:
    with pytest.raises(ToolError, match=r"\w"):
        FAMILY.call_tool(CASE, ToolCall(name=name, arguments=arguments))


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
def test_demonstrations_replay_to_the_optimum(difficulty: int) -> None:
    rng = random.Random(difficulty)
    for scenario in scenarios(difficulty, 20):
        *calls, last = FAMILY.demonstrate(scenario, rng)
        observations = [FAMILY.call_tool(scenario, step.call) for step in calls if step.call]
        assert scenario.optimal_tool_calls <= len(observations) == len(calls) <= 2
        assert last.call is None
        assert FAMILY.verify(scenario, last.text).reward == 1.0
        final = json.loads(last.text.split("\n")[1])
        assert re.fullmatch(rf"total {final['total']} quality \d+ ok", observations[-1])
        assert set(final) == set(ROLE.answer.model_fields)
        assert {step.call.name for step in calls if step.call} <= {tool.name for tool in ROLE.tools}


def test_what_one_upgrade_reaches_by_hand() -> None:
    assert (
        reach_alone(FACTS) == "S1 3 19 S2 3 16 S3 2 8"
    )  # 3 points missing: S1 and S2 gain 2 and 1 at tier 2
    assert reach_alone({**FACTS, "floor": 11}) == "S1 3 19 S2 no S3 no"  # 5 points: +5, +4, +4 at most


def test_both_demonstration_styles_occur_and_say_what_the_tool_says() -> None:
    rng = random.Random(0)
    num_basic_first = 0
    for scenario in scenarios(2, 200):
        first, *others = FAMILY.demonstrate(scenario, rng)
        if len(others) == 2:
            assert first.text == "basic"
            first = others[0]
            num_basic_first += 1
        _, need, *reached = first.text.split()
        basic = {"S1": 1, "S2": 1, "S3": 1}
        assert price(scenario, basic).endswith(f" short {need}")
        for item, tier, extra in re.findall(r"(S\d) (\d) (\d+)", " ".join(reached)):
            total, judgement = re.findall(
                r"total (\d+) quality \d+ (\w+)", price(scenario, {**basic, item: int(tier)})
            )[0]
            assert (judgement, int(total)) == ("ok", price_plan(scenario.facts, (1, 1, 1))[0] + int(extra))
            assert price(scenario, {**basic, item: int(tier) - 1}).split()[-2] == "short"
    assert 70 < num_basic_first < 130


def test_easy_optima_upgrade_one_item_and_hard_ones_often_several() -> None:
    upgraded = {
        difficulty: [sum(tier > 1 for tier in s.truth["tiers"].values()) for s in scenarios(difficulty, 100)]
        for difficulty in (1, 2, 3)
    }
    assert ONE_UPGRADE_UP_TO == 2
    assert set(upgraded[1]) == set(upgraded[2]) == {1}
    assert sum(count > 1 for count in upgraded[3]) >= 20


def test_greedy_repair_by_hand() -> None:
    # quality per price: S1 2/7, S2 1/3, S3 3/8: S3 first, and the floor of 9 holds
    assert repair_greedily(FACTS) == {"S1": 1, "S2": 1, "S3": 2}
    # floor 10: then S2 (1/3) before S1 (2/7) and S3 tier 3 (1/4)
    assert repair_greedily({**FACTS, "floor": 10}) == {"S1": 1, "S2": 2, "S3": 2}


@pytest.mark.parametrize("difficulty", [1, 2, 3, 5])
def test_baselines_are_ordered(difficulty: int) -> None:
    cases = list(scenarios(difficulty, 300))
    mean = {name: mean_of(name, cases) for name in FAMILY.baselines}
    assert mean["random"] < mean["greedy"] < 1.0
    assert mean["constant"] < mean["greedy"] / 2


@pytest.mark.parametrize("difficulty", [1, 2, 3])
def test_no_constant_answer_comes_near_the_greedy_one(difficulty: int) -> None:
    cases = list(scenarios(difficulty, 200))
    greedy = mean_of("greedy", cases)
    for tiers in product((1, 2, 3), repeat=3):
        answer = {"tiers": dict(zip(("S1", "S2", "S3"), tiers, strict=True)), "total": 44}
        assert sum(reward(case, answer) for case in cases) / 200 < greedy / 2


def test_difficulty_is_harder_for_the_greedy_policy() -> None:
    plan = ((1, 400), (3, 400), (5, 400), (8, 200))
    exact = [mean_of("greedy", list(scenarios(difficulty, count)), "exact") for difficulty, count in plan]
    assert exact == sorted(exact, reverse=True)
    assert exact[0] > exact[-1] + 0.3


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
def test_brief_is_prices_and_limits_only(difficulty: int) -> None:
    sectors = "|".join(sector.capitalize() for sector in SECTORS)
    budget = r" Budget \d+\." if difficulty >= 5 else ""
    discount = r" Discount \d each when \d share a tier\." if difficulty >= 4 else ""
    for scenario in scenarios(difficulty, 10):
        count = len(scenario.facts["items"])
        lines = rephrase(scenario, "lines").split("\n")
        assert re.fullmatch(
            rf"({sectors}) case\. Basic quality \d+, at least \d+\.{budget}{discount}", lines[0]
        )
        assert [line.split()[0] for line in lines[1:]] == [f"S{number}" for number in range(1, count + 1)]
        assert all(re.fullmatch(r"S\d \d\d 2 \+\d+ \+\d 3 \+\d+ \+\d", line) for line in lines[1:])
        assert json.loads(json.dumps(scenario.facts)) == scenario.facts
        assert json.loads(json.dumps(scenario.truth)) == scenario.truth


def test_totals_have_two_digits_at_low_difficulty() -> None:
    for difficulty in (1, 2, 3):
        for scenario in scenarios(difficulty, 100):
            totals, _ = price_all_plans(scenario.facts)
            assert min(totals) >= 30
            assert max(totals) <= 99


def test_generation_is_pure_and_splits_do_not_share_scenarios() -> None:
    train, again = list(scenarios(2, 100)), list(scenarios(2, 100))
    assert train == again
    test = [FAMILY.generate("test", 0, index, 2) for index in range(100)]
    other_seed = list(scenarios(2, 100, seed=1))
    briefs = [{scenario.brief for scenario in part} for part in (train, test, other_seed)]
    assert not briefs[0] & briefs[1]
    assert not briefs[0] & briefs[2]
    assert train[3].key == "cost/train/0/3/2"
    with pytest.raises(ValueError, match="difficulty"):
        FAMILY.generate("train", 0, 0, 11)

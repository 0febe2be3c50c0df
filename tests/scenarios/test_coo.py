"""Family coo: schedules by hand and by CP-SAT, unique optimum, strict verifier, honest baselines."""

import json
import random
import re
from statistics import fmean
from typing import Any

import pytest

from scenarios.base import SPLITS, Scenario, ToolCall, ToolError
from scenarios.coo import FAMILY, rephrase
from scenarios.world.work import (
    PlanError,
    assignments,
    best_finish,
    best_plans,
    build_work,
    fastest_plan,
    num_assignments,
    plan_finish,
    recheck_finish,
)

WORK = {
    "people": ["A", "B"],
    "packages": {
        "P1": {"hours": {"A": 20, "B": 12}, "after": []},
        "P2": {"hours": {"A": 15, "B": 30}, "after": ["P1"]},
        "P3": {"hours": {"A": 25, "B": 18}, "after": []},
    },
}
ORDER_MATTERS = {
    "people": ["A", "B"],
    "packages": {
        "P1": {"hours": {"A": 10}, "after": []},
        "P2": {"hours": {"B": 10}, "after": ["P1"]},
        "P3": {"hours": {"B": 10}, "after": []},
    },
}
HOSTILE_TEXTS = (
    "",
    "{",
    "null",
    "{}",
    "[" * 5_000,
    '{"assign": ' * 2_000,
    " " * 30_000,
    '{"assign": {}, "finish": 0}',
    '{"assign": {"P1": "A"}, "finish": 20}',
    '{"assign": {"P1": "A", "P2": "A", "P3": "Z"}, "finish": 20}',
    '{"assign": {"P1": "A", "P2": "A", "P9": "A"}, "finish": 20}',
    '{"assign": {"P1": "A", "P2": "A", "P3": 1}, "finish": 20}',
    '{"assign": {"P1": "A", "P2": "A", "P3": null}, "finish": 20}',
    '{"assign": {"P1": "A", "P2": "A", "P3": ["A"]}, "finish": 20}',
    '{"assign": {"P1": "A", "P1": "B", "P2": "A", "P3": "A"}, "finish": 20}',
    '{"assign": {"P1": "A", "P2": "A", "P3": "A"}, "finish": NaN}',
    '{"assign": {"P1": "A", "P2": "A", "P3": "A"}, "finish": 20.0}',
    '{"assign": {"P1": "A", "P2": "A", "P3": "A"}, "finish": true}',
    '{"assign": {"P1": "A", "P2": "A", "P3": "A"}}',
    '{"assign": {"P1": "A", "P2": "A", "P3": "A"}, "finish": 20, "x": 1}',
    '{"assign": {"\\ud800": "A"}, "finish": 20}',
    '{"assign": {"P1": "\\ud800"}, "finish": 20}',
    '{"assign": [["P1", "A"]], "finish": 20}',
    "\x00\ud800{}",
)
HOSTILE_ARGUMENTS: tuple[Any, ...] = (
    {},
    {"assign": None},
    {"assign": "P1"},
    {"assign": []},
    {"assign": {}},
    {"assign": {"P1": "A"}},
    {"assign": {"P1": ["A"], "P2": "A", "P3": "A"}},
    {"assign": {"P1": None, "P2": "A", "P3": "A"}},
    {"assign": {"P1": "Z", "P2": "A", "P3": "A"}},
    {"assign": {1: "A", "P2": "A", "P3": "A"}},
    {"assign": {"P1": "A", "P2": "A", "P3": "A", "P4": "A"}},
    {"assign": {"P1": "A", "P2": "A", "P3": "A"}, "finish": 1},
    {"P1": "A", "P2": "A", "P3": "A"},
    [],
    "assign",
    None,
    7,
)


def _sample(num: int, difficulties: tuple[int, ...] = tuple(range(1, 11))) -> list[Scenario]:
    return [FAMILY.generate("train", seed=1, index=i, difficulty=d) for d in difficulties for i in range(num)]


def test_finish_by_hand() -> None:
    # B: P1 0-12, P3 12-30; A: P2 12-27
    assert plan_finish(WORK, {"P1": "B", "P2": "A", "P3": "B"}) == 30
    # B: P3 0-18, P1 18-30; A: P2 30-45
    assert plan_finish(WORK, {"P3": "B", "P1": "B", "P2": "A"}) == 45
    # A: P1 0-20, P2 20-35; B: P3 0-18
    assert plan_finish(WORK, {"P1": "A", "P2": "A", "P3": "B"}) == 35
    assert best_plans(WORK, most=5) == (30, [{"P1": "B", "P2": "A", "P3": "B"}])


def test_order_can_matter() -> None:
    assert plan_finish(ORDER_MATTERS, {"P1": "A", "P2": "B", "P3": "B"}) == 30
    assert plan_finish(ORDER_MATTERS, {"P3": "B", "P1": "A", "P2": "B"}) == 20
    assert best_finish(ORDER_MATTERS) == 20


def test_illegal_plans_are_refused_by_kind() -> None:
    for plan, kind in (
        ({"P2": "A", "P1": "A", "P3": "A"}, "infeasible"),
        ({"P1": "A", "P2": "A"}, "infeasible"),
        ({"P1": "C", "P2": "A", "P3": "A"}, "unknown_id"),
        ({"P1": "A", "P2": "A", "P4": "A"}, "unknown_id"),
    ):
        with pytest.raises(PlanError) as caught:
            plan_finish(WORK, plan)
        assert caught.value.kind == kind
    with pytest.raises(PlanError, match="B cannot do P1"):
        plan_finish(ORDER_MATTERS, {"P1": "B", "P2": "B", "P3": "B"})


def test_greedy_plan_and_assignments_by_hand() -> None:
    assert fastest_plan(WORK) == {"P1": "B", "P2": "A", "P3": "B"}
    assert num_assignments(WORK) == len(list(assignments(WORK))) == 8
    assert num_assignments(ORDER_MATTERS) == 1


def test_best_finish_agrees_with_cp_sat() -> None:
    rng = random.Random(0)
    for difficulty in range(1, 11):
        for _ in range(5):
            work = build_work(rng, difficulty)
            finish, plans = best_plans(work, most=3)
            assert finish == recheck_finish(work)
            assert all(plan_finish(work, plan) == finish for plan in plans)


def test_generate_is_pure_and_splits_differ() -> None:
    scenario = FAMILY.generate("train", seed=0, index=7, difficulty=2)
    assert scenario == FAMILY.generate("train", seed=0, index=7, difficulty=2)
    assert scenario.key == "coo/train/0/7/2"
    drawn = [json.dumps(FAMILY.generate(split, 0, i, 2).facts) for split in SPLITS for i in range(100)]
    assert len(set(drawn)) == len(drawn)
    with pytest.raises(ValueError, match="split"):
        FAMILY.generate("dev", seed=0, index=0, difficulty=1)


def test_gold_scores_exactly_one() -> None:
    for scenario in (*_sample(60, (1, 2, 3, 4, 5, 6)), *_sample(5, (7, 8, 9, 10))):
        verdict = FAMILY.verify(scenario, json.dumps(FAMILY.solve(scenario)))
        assert (verdict.reward, verdict.exact, verdict.feasible, verdict.failure) == (1.0, True, True, None)


def test_optimum_is_unique_and_in_package_order_up_to_three() -> None:
    for scenario in _sample(60, (1, 2, 3)):
        finishes = [(plan_finish(scenario.facts, plan), plan) for plan in assignments(scenario.facts)]
        best = min(finish for finish, _ in finishes)
        assert best == best_finish(scenario.facts) == scenario.truth["finish"]
        assert [plan for finish, plan in finishes if finish == best] == [scenario.truth["assign"]]
        assert list(scenario.truth["assign"]) == list(scenario.facts["packages"])
    for scenario in _sample(6, (4, 6, 8)):
        assert len(best_plans(scenario.facts, most=2)[1]) == 1


def test_facts_are_json_and_numbers_have_two_digits_up_to_three() -> None:
    for scenario in _sample(60, (1, 2, 3)):
        for value in (scenario.facts, scenario.truth):
            assert json.loads(json.dumps(value)) == value
        assert all(plan_finish(scenario.facts, plan) <= 99 for plan in assignments(scenario.facts))
        assert all(10 <= int(number) <= 99 for number in re.findall(r"\b\d+\b", scenario.brief))
        assert scenario.truth["finish"] < scenario.facts["deadline"] <= 99


def test_any_changed_answer_scores_lower() -> None:
    for scenario in (*_sample(12, (1, 2, 3, 5)), *_sample(2, (8,))):
        gold = FAMILY.solve(scenario)
        changed: list[dict[str, Any]] = [gold | {"finish": gold["finish"] + delta} for delta in (-1, 1)]
        for name, person in gold["assign"].items():
            others = [other for other in scenario.facts["people"] if other != person]
            changed += [gold | {"assign": gold["assign"] | {name: other}} for other in others]
            changed.append(gold | {"assign": {n: p for n, p in gold["assign"].items() if n != name}})
        for answer in changed:
            assert FAMILY.verify(scenario, json.dumps(answer)).reward < 1


def test_reward_of_every_assignment() -> None:
    for scenario in _sample(10, (1, 3)):
        finishes = [plan_finish(scenario.facts, plan) for plan in assignments(scenario.facts)]
        mean, best = fmean(finishes), min(finishes)
        for plan, finish in zip(assignments(scenario.facts), finishes, strict=True):
            right = FAMILY.verify(scenario, json.dumps({"assign": plan, "finish": finish}))
            wrong = FAMILY.verify(scenario, json.dumps({"assign": plan, "finish": 0}))
            if finish > scenario.facts["deadline"]:
                assert (right.reward, right.feasible, right.failure) == (0.0, False, "infeasible")
                continue
            value = 0.6 * max(0.0, (mean - finish) / (mean - best)) + 0.3 * (finish == best)
            assert right.reward == pytest.approx(value + 0.1)
            assert wrong.reward == pytest.approx(value)
            assert right.failure == (None if finish == best else "suboptimal")


def test_a_late_plan_is_infeasible() -> None:
    late = [
        (scenario, plan)
        for scenario in _sample(30, (6,))
        for plan in assignments(scenario.facts)
        if plan_finish(scenario.facts, plan) > scenario.facts["deadline"]
    ]
    assert late
    for scenario, plan in late[:50]:
        verdict = FAMILY.verify(
            scenario, json.dumps({"assign": plan, "finish": plan_finish(scenario.facts, plan)})
        )
        assert (verdict.reward, verdict.failure) == (0.0, "infeasible")
        assert FAMILY.call_tool(
            scenario, ToolCall(name="check_assignment", arguments={"assign": plan})
        ).endswith("late")


def test_verify_is_total() -> None:
    scenario = FAMILY.generate("test", seed=0, index=0, difficulty=1)
    gold = FAMILY.solve(scenario)
    for text in (*HOSTILE_TEXTS, scenario.brief, json.dumps(gold) * 2):
        verdict = FAMILY.verify(scenario, text)
        assert verdict.reward == 0.0
        assert verdict.failure
    rng = random.Random(0)
    for _ in range(1_000):
        letters = list(json.dumps(gold))
        for _ in range(rng.randint(1, 4)):
            letters[rng.randrange(len(letters))] = rng.choice('{}[]",:0123456789ABPeE.-+ \\\x00\ud800')
        text = "".join(letters)
        verdict = FAMILY.verify(scenario, text)
        assert 0.0 <= verdict.reward <= 1.0
        assert verdict.reward < 1 or verdict.exact


def test_rewriting_without_change_keeps_the_reward() -> None:
    for scenario in _sample(3, (1, 3, 6)):
        gold = FAMILY.solve(scenario)
        backwards = dict(reversed(gold.items()))
        for text in (json.dumps(backwards), json.dumps(gold, indent=2), f"best\n{json.dumps(gold)}\n"):
            assert FAMILY.verify(scenario, text).reward == 1.0


def test_tool_reports_finish_and_refuses_hostile_calls() -> None:
    scenario = FAMILY.generate("train", seed=0, index=0, difficulty=1)
    gold = FAMILY.solve(scenario)
    call = ToolCall(name="check_assignment", arguments={"assign": gold["assign"]})
    assert FAMILY.call_tool(scenario, call) == f"finish {gold['finish']} on time"
    for arguments in HOSTILE_ARGUMENTS:
        with pytest.raises(ToolError, match=r"\w"):
            FAMILY.call_tool(scenario, ToolCall(name="check_assignment", arguments=arguments))
    for name in ("", "check", "Check_assignment"):
        with pytest.raises(ToolError, match="check_assignment"):
            FAMILY.call_tool(scenario, ToolCall(name=name, arguments={"assign": gold["assign"]}))


def test_certificate_agrees() -> None:
    for scenario in _sample(4, (1, 2, 3, 5, 8)):
        oracle, again = FAMILY.certify(scenario)
        assert oracle == again


def test_brief_lists_the_work_only() -> None:
    line = r"P\d [A-C] \d\d( [A-C] \d\d)*( after P\d( P\d)*)?"
    for scenario in _sample(10, (1, 2, 3, 4, 6)):
        first, *rest = rephrase(scenario, "lines").split("\n")
        assert re.fullmatch(r"[A-Z][a-z]+ case\. Deadline \d+\.", first)
        assert len(rest) == len(scenario.facts["packages"])
        assert all(re.fullmatch(line, text) for text in rest)


def test_baselines_are_ordered() -> None:
    for difficulty in (1, 3):
        sample = _sample(300, (difficulty,))
        mean = {
            name: fmean(FAMILY.verify(s, answer(s, random.Random(i))).reward for i, s in enumerate(sample))
            for name, answer in FAMILY.baselines.items()
        }
        assert max(mean["random"], mean["constant"]) + 0.1 < mean["greedy"] < 0.9
        assert mean["constant"] < 0.37


def test_demonstrations_replay_in_both_styles() -> None:
    styles = set()
    for index, scenario in enumerate((*_sample(40, (1, 2, 3)), *_sample(5, (5, 8)))):
        *calls, last = FAMILY.demonstrate(scenario, random.Random(index))
        observations = []
        for step in calls:
            assert step.call is not None
            observations.append(FAMILY.call_tool(scenario, step.call))
        assert observations[-1] == f"finish {scenario.truth['finish']} on time"
        assert last.call is None
        assert FAMILY.verify(scenario, last.text).reward == 1.0
        styles.add(tuple(step.text for step in calls))
        if len(calls) == 2:
            assert calls[0].call is not None
            assert calls[0].call.arguments["assign"] == fastest_plan(scenario.facts)
    assert styles == {("plan",), ("fast",), ("fast", "better")}

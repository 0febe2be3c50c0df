"""Family cto: exact figures by hand and by networkx, unique optimum, strict verifier, honest baselines."""

import itertools
import json
import random
import re
from functools import partial
from statistics import fmean
from typing import Any

import pytest

from roles.cto import ROLE
from scenarios.base import SPLITS, Scenario, ToolCall, ToolError
from scenarios.cto import FAMILY, availability_share, rephrase
from scenarios.world.architecture import (
    BUILDS_FROM,
    NUM_BUILDS,
    Figures,
    build_architecture,
    figures,
    recheck_figures,
)


def _component(
    latency: int, availability: int, throughput: int, cost: int, replicas: int = 1
) -> dict[str, int]:
    return {
        "latency": latency,
        "availability": availability,
        "throughput": throughput,
        "cost": cost,
        "replicas": replicas,
    }


CHAIN = {
    "components": {
        "M1": _component(10, 90, 40, 10),
        "M2": _component(20, 80, 15, 7, replicas=2),
        "M3": _component(15, 95, 50, 12),
    },
    "edges": [["M1", "M2"], ["M2", "M3"]],
}
DIAMOND = {
    "components": {
        "M1": _component(10, 90, 60, 10),
        "M2": _component(20, 80, 25, 11),
        "M3": _component(15, 70, 30, 12),
        "M4": _component(5, 90, 58, 13),
    },
    "edges": [["M1", "M2"], ["M1", "M3"], ["M2", "M4"], ["M3", "M4"]],
}
BRIDGE = {
    "components": {
        "M1": _component(1, 100, 99, 1),
        "M2": _component(2, 50, 10, 1),
        "M3": _component(9, 50, 20, 1),
        "M4": _component(30, 50, 5, 1),
        "M5": _component(4, 50, 12, 1),
        "M6": _component(3, 100, 99, 1),
    },
    "edges": [
        ["M1", "M2"],
        ["M1", "M3"],
        ["M2", "M4"],
        ["M2", "M5"],
        ["M3", "M5"],
        ["M4", "M6"],
        ["M5", "M6"],
    ],
}
HOSTILE_TEXTS = (
    "",
    "{",
    "}{",
    "null",
    "[]",
    "{}",
    "no answer",
    "{" * 5_000,
    '{"option": ' + "[" * 5_000,
    " " * 30_000,
    '{"option": "A", "cost": NaN, "latency": 35, "availability": 97}',
    '{"option": "A", "cost": Infinity, "latency": 35, "availability": 97}',
    '{"option": "A", "cost": 1e999, "latency": 35, "availability": 97}',
    '{"option": "A", "cost": ' + "9" * 6_000 + ', "latency": 35, "availability": 97}',
    '{"option": "A", "cost": true, "latency": 35, "availability": 97}',
    '{"option": "A", "cost": "42", "latency": 35, "availability": 97}',
    '{"option": ["A"], "cost": 42, "latency": 35, "availability": 97}',
    '{"option": "Z", "cost": 42, "latency": 35, "availability": 97}',
    '{"option": "", "cost": 42, "latency": 35, "availability": 97}',
    '{"option": "\\ud800", "cost": 42, "latency": 35, "availability": 97}',
    '{"option": "A", "cost": 42, "latency": 35}',
    '{"option": "A", "cost": 42, "latency": 35, "availability": 97, "why": 1}',
    '{"option": "A", "option": "B", "cost": 42, "latency": 35, "availability": 97}',
    "\x00\ud800{}",
)
HOSTILE_ARGUMENTS: tuple[Any, ...] = (
    {},
    {"option": None},
    {"option": 1},
    {"option": True},
    {"option": ["A"]},
    {"option": {"A": "A"}},
    {"option": "Z"},
    {"option": "a"},
    {"option": ""},
    {"option": "A", "extra": 1},
    {"Option": "A"},
    [],
    ["option"],
    "option",
    None,
    7,
)


def _sample(num: int, difficulties: tuple[int, ...] = tuple(range(1, 11))) -> list[Scenario]:
    return [FAMILY.generate("train", seed=1, index=i, difficulty=d) for d in difficulties for i in range(num)]


def _limits_hold(found: dict[str, int], limits: dict[str, int | None]) -> bool:
    return (
        found["latency"] <= (limits["max_latency"] or 0)
        and found["availability"] >= (limits["min_availability"] or 0)
        and found["throughput"] >= (limits["min_throughput"] or 0)
    )


def test_figures_of_a_chain_with_a_replica_pair() -> None:
    # 0.9 x (1 - 0.2^2) x 0.95 = 0.8208; capacity min(40, 30, 50); cost 10 + 2 x 7 + 12
    assert figures(CHAIN) == Figures(latency=45, availability=82, throughput=30, cost=36)


def test_figures_of_parallel_branches() -> None:
    # 0.9 x (1 - 0.2 x 0.3) x 0.9 = 0.7614; flow min(60, 25 + 30, 58); latency 10 + 20 + 5
    assert figures(DIAMOND) == Figures(latency=35, availability=76, throughput=55, cost=46)


def test_figures_where_no_series_parallel_form_exists() -> None:
    # M5 up (1/2): M2 or M3 up, 3/4; M5 down: M2 and M4 up, 1/4. Flow: M4 5 + M5 12. Latency 1 + 2 + 30 + 3.
    assert figures(BRIDGE) == Figures(latency=36, availability=50, throughput=17, cost=6)


def test_availability_is_floored_exactly() -> None:
    # 100 x 0.29 is 28.999999999999996 in floating point
    pair = {
        "components": {"M1": _component(1, 29, 1, 1), "M2": _component(1, 100, 1, 1)},
        "edges": [["M1", "M2"]],
    }
    assert figures(pair).availability == 29


def test_figures_agree_with_networkx() -> None:
    rng = random.Random(0)
    for difficulty in range(1, 11):
        for _ in range(8):
            architecture = build_architecture(rng, difficulty)
            assert figures(architecture) == recheck_figures(architecture)


def test_generate_is_pure_and_splits_differ() -> None:
    scenario = FAMILY.generate("train", seed=0, index=7, difficulty=2)
    assert scenario == FAMILY.generate("train", seed=0, index=7, difficulty=2)
    assert scenario.key == "cto/train/0/7/2"
    drawn = [json.dumps(FAMILY.generate(split, 0, i, 2).facts) for split in SPLITS for i in range(100)]
    assert len(set(drawn)) == len(drawn)
    with pytest.raises(ValueError, match="difficulty"):
        FAMILY.generate("train", seed=0, index=0, difficulty=11)


def test_gold_scores_exactly_one() -> None:
    for scenario in _sample(40):
        verdict = FAMILY.verify(scenario, json.dumps(FAMILY.solve(scenario)))
        assert (verdict.reward, verdict.exact, verdict.feasible, verdict.failure) == (1.0, True, True, None)


def test_optimum_is_unique_and_a_cheaper_option_is_forbidden() -> None:
    for scenario in _sample(40):
        everything, limits = scenario.truth["figures"], scenario.facts["limits"]
        costs = {option: f["cost"] for option, f in everything.items() if _limits_hold(f, limits)}
        best = min(costs.values())
        assert [option for option, cost in costs.items() if cost == best] == [scenario.truth["option"]]
        assert min(f["cost"] for f in everything.values()) < best


def test_facts_and_truth_are_json_and_figures_have_two_digits() -> None:
    for scenario in _sample(20):
        for value in (scenario.facts, scenario.truth):
            assert json.loads(json.dumps(value)) == value
        for found in scenario.truth["figures"].values():
            assert all(10 <= number <= 99 for number in found.values())


def test_any_changed_answer_scores_lower() -> None:
    for scenario in _sample(10):
        gold = FAMILY.solve(scenario)
        changed = [
            gold | {"option": option} for option in scenario.truth["figures"] if option != gold["option"]
        ]
        changed += [
            gold | {key: gold[key] + d} for key in ("cost", "latency", "availability") for d in (-1, 1)
        ]
        for answer in changed:
            assert FAMILY.verify(scenario, json.dumps(answer)).reward < 1


def test_reward_of_each_kind_of_answer() -> None:
    scenario = next(
        s
        for s in _sample(60, (4,))
        if sum(_limits_hold(f, s.facts["limits"]) for f in s.truth["figures"].values()) == 3
    )
    everything, limits = scenario.truth["figures"], scenario.facts["limits"]
    costs = {option: f["cost"] for option, f in everything.items() if _limits_hold(f, limits)}
    best, mean = min(costs.values()), sum(costs.values()) / 3
    for option, found in everything.items():
        answer = {"option": option} | {key: found[key] for key in ("cost", "latency", "availability")}
        right = FAMILY.verify(scenario, json.dumps(answer))
        wrong = FAMILY.verify(scenario, json.dumps(answer | {"cost": 0, "latency": 0}))
        if option not in costs:
            assert (right.reward, right.feasible, right.failure) == (0.0, False, "infeasible")
            continue
        graded = max(0.0, (mean - costs[option]) / (mean - best))
        exact = costs[option] == best
        assert right.reward == pytest.approx(0.6 * graded + 0.3 * exact + 0.1)
        assert wrong.reward == pytest.approx(0.6 * graded + 0.3 * exact + 0.1 / 3)
        assert right.failure == (None if exact else "suboptimal")


def test_verify_is_total() -> None:
    scenario = FAMILY.generate("test", seed=0, index=0, difficulty=3)
    gold = FAMILY.solve(scenario)
    hedged = json.dumps(gold) + json.dumps(gold | {"option": "A"})
    for text in (*HOSTILE_TEXTS, scenario.brief, hedged):
        verdict = FAMILY.verify(scenario, text)
        assert verdict.reward == 0.0
        assert verdict.failure
    rng = random.Random(0)
    for _ in range(1_000):
        letters = list(json.dumps(gold))
        for _ in range(rng.randint(1, 4)):
            letters[rng.randrange(len(letters))] = rng.choice('{}[]",:0123456789ABCeE.-+ \\\x00\ud800')
        text = "".join(letters)
        verdict = FAMILY.verify(scenario, text)
        assert 0.0 <= verdict.reward <= 1.0
        assert verdict.reward < 1 or json.loads(text) == gold


def test_rewriting_without_change_keeps_the_reward() -> None:
    for scenario in _sample(3):
        gold = FAMILY.solve(scenario)
        backwards = dict(reversed(gold.items()))
        for text in (json.dumps(backwards), json.dumps(gold, indent=2), f"C no\n{json.dumps(gold)}\n"):
            assert FAMILY.verify(scenario, text).reward == 1.0


def test_tools_report_the_figures_and_refuse_hostile_calls() -> None:
    scenario = FAMILY.generate("train", seed=0, index=0, difficulty=3)
    found = scenario.truth["figures"]["A"]
    assert FAMILY.call_tool(scenario, ToolCall(name="measure", arguments={"option": "A"})) == (
        f"cost {found['cost']} latency {found['latency']} availability {found['availability']} "
        f"throughput {found['throughput']}"
    )
    easy = FAMILY.generate("train", seed=0, index=0, difficulty=1)
    assert "throughput" not in FAMILY.call_tool(easy, ToolCall(name="measure", arguments={"option": "A"}))
    described = FAMILY.call_tool(scenario, ToolCall(name="describe", arguments={"option": "A"}))
    assert described.splitlines()[0].startswith("M1 latency ")
    assert "M1-M2" in described.splitlines()[-1]
    for name in ("measure", "describe"):
        for arguments in HOSTILE_ARGUMENTS:
            with pytest.raises(ToolError, match=r"option"):
                FAMILY.call_tool(scenario, ToolCall(name=name, arguments=arguments))
    for name in ("", "Measure", "solve"):
        with pytest.raises(ToolError, match="tools are measure describe"):
            FAMILY.call_tool(scenario, ToolCall(name=name, arguments={"option": "A"}))


def test_certificate_agrees() -> None:
    for scenario in _sample(4):
        oracle, again = FAMILY.certify(scenario)
        assert oracle == again


def test_brief_names_requirements_only() -> None:
    head = r"[A-Z][a-z]+ case\. Options A B C( [DEF])*"
    limits = r"\. Latency at most \d+\. Availability at least \d+\."
    for scenario in _sample(20):
        builds = r" in builds 1 2 3" if scenario.difficulty >= BUILDS_FROM else ""
        tail = r" Throughput at least \d+\." if scenario.difficulty >= 3 else ""
        assert re.fullmatch(head + builds + limits + tail, rephrase(scenario, "lines"))
    letters = [s.truth["option"] for s in _sample(600, (1,))]
    assert all(abs(letters.count(letter) / 600 - 1 / 3) < 0.08 for letter in "ABC")


def test_builds_are_the_design_and_two_ways_to_strengthen_one_component() -> None:
    for scenario in _sample(15, (5, 8, 10)):
        architectures = scenario.facts["architectures"]
        assert set(architectures) == {
            f"{option[0]}{build}" for option in architectures for build in (1, 2, 3)
        }
        for letter in {option[0] for option in architectures}:
            builds = [architectures[f"{letter}{build}"] for build in (1, 2, 3)]
            differences = [
                sum(a["components"][name] != b["components"][name] for name in a["components"])
                for a, b in itertools.combinations(builds, 2)
            ]
            assert all(build["edges"] == builds[0]["edges"] for build in builds)
            assert sorted(differences)[:2] == [1, 1]  # from the design; the two others may change one each
            costs = sorted(scenario.truth["figures"][f"{letter}{build}"]["cost"] for build in (1, 2, 3))
            assert costs[0] < costs[1]


def test_the_letter_of_an_option_asks_about_its_builds() -> None:
    scenario = FAMILY.generate("train", seed=0, index=0, difficulty=6)
    call = partial(ToolCall, name="measure")
    single = [FAMILY.call_tool(scenario, call(arguments={"option": f"B{build}"})) for build in (1, 2, 3)]
    together = FAMILY.call_tool(scenario, call(arguments={"option": "B"}))
    assert together.splitlines() == [f"B{build} {line}" for build, line in enumerate(single, start=1)]
    described = FAMILY.call_tool(scenario, ToolCall(name="describe", arguments={"option": "B"}))
    assert [line.split()[0] for line in described.splitlines() if line.startswith("B")] == ["B1", "B2", "B3"]
    with pytest.raises(ToolError, match="options are A1 A2 A3 B1"):
        FAMILY.call_tool(scenario, call(arguments={"option": "B4"}))
    gold = FAMILY.solve(scenario)
    assert FAMILY.verify(scenario, json.dumps(gold | {"option": gold["option"][0]})).failure == "unknown_id"


def test_availability_decides_as_often_as_it_should() -> None:
    for difficulty in (3, 10):
        sample = _sample(200, (difficulty,))
        misled = 0
        for scenario in sample:
            relaxed = {**scenario.facts["limits"], "min_availability": 0}
            found = scenario.truth["figures"]
            fit = [option for option in found if _limits_hold(found[option], relaxed)]
            misled += min(fit, key=lambda option: found[option]["cost"]) != scenario.truth["option"]
        assert abs(misled / 200 - availability_share(difficulty)) < 0.1


def test_baselines_are_ordered() -> None:
    for difficulty in (1, 5):
        sample = _sample(300, (difficulty,))
        mean = {
            name: fmean(FAMILY.verify(s, answer(s, random.Random(i))).reward for i, s in enumerate(sample))
            for name, answer in FAMILY.baselines.items()
        }
        assert max(mean["random"], mean["constant"]) + 0.1 < mean["greedy"] < 0.9
        assert mean["constant"] < 0.37


def test_the_honest_player_takes_the_first_option_that_meets_all() -> None:
    for index in range(40):
        scenario = FAMILY.generate("test", 0, index, 1 + index % 10)
        figures = scenario.truth["figures"]
        chosen = json.loads(FAMILY.baselines["honest"](scenario, random.Random(0)))["option"]
        verdicts = {
            option: FAMILY.verify(
                scenario, json.dumps({"option": option, "cost": 1, "latency": 1, "availability": 1})
            )
            for option in figures
        }
        assert chosen == next(option for option in figures if verdicts[option].feasible)


def test_demonstrations_replay() -> None:
    tools = {tool.name for tool in ROLE.tools}
    for scenario in _sample(20):
        *calls, last = FAMILY.demonstrate(scenario, random.Random(0))
        assert len(calls) == scenario.optimal_tool_calls
        for step in calls:
            assert step.call is not None
            assert step.call.name in tools
            seen = FAMILY.call_tool(scenario, step.call)
            assert seen.count("cost ") == (1 if scenario.difficulty < BUILDS_FROM else NUM_BUILDS)
        assert last.call is None
        assert FAMILY.verify(scenario, last.text).reward == 1.0


def test_demonstrated_verdicts_follow_the_observations() -> None:
    for scenario in _sample(20, (1, 2)):
        limits = scenario.facts["limits"]
        steps = FAMILY.demonstrate(scenario, random.Random(0))
        for step, following in itertools.pairwise(steps):
            assert step.call is not None
            seen = re.findall(r"\d+", FAMILY.call_tool(scenario, step.call))
            cost, latency, availability = map(int, seen)
            ok = latency <= limits["max_latency"] and availability >= limits["min_availability"]
            option = step.call.arguments["option"]
            assert following.text.splitlines()[0] == (f"{option} ok {cost}" if ok else f"{option} no")

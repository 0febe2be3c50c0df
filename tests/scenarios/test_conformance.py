"""All families conform at several difficulties, one from outside too; each planted fault is reported."""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from fast_loop import slow_except
from trial_counts import num_trials

from roles.base import Answer, AnswerError, parse_answer
from scenarios.base import (
    Family,
    Scenario,
    Split,
    Step,
    Style,
    ToolCall,
    ToolError,
    Verdict,
    check_coordinates,
    rejected,
    scenario_rng,
)
from scenarios.conformance import CHECKS, check
from scenarios.hostile import mutate_values
from scenarios.registry import FAMILIES, families

GOOD = FAMILIES["cto"]


@pytest.mark.parametrize("count", slow_except((15, num_trials(30, 50)), 15))
@pytest.mark.parametrize("style", ["full", "short"])
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_conforms(name: str, style: Style, count: int) -> None:
    family = families(style)[name]
    assert family.name == family.role == name
    assert check(family, count=count) == []


Baseline = Callable[[Scenario, random.Random], str]


class ContractAnswer(Answer):
    contract: str
    fee: int


def generate_contracts(split: Split, seed: int, index: int, difficulty: int) -> Scenario:
    check_coordinates(split, seed, index, difficulty)
    rng = scenario_rng("legal", split, seed, index, difficulty)
    fees = dict(zip("ABCDE", rng.sample(range(10, 100), 5), strict=True))
    return Scenario(
        family="legal",
        split=split,
        seed=seed,
        index=index,
        difficulty=difficulty,
        role="legal",
        brief="Bank case. Contracts A B C D E. Take the lowest fee.",
        facts={"fees": fees},
        truth={"contract": min(fees, key=fees.__getitem__)},
        optimal_tool_calls=5,
    )


def solve_contracts(scenario: Scenario) -> dict[str, Any]:
    best = scenario.truth["contract"]
    return {"contract": best, "fee": scenario.facts["fees"][best]}


def verify_contracts(scenario: Scenario, text: str) -> Verdict:
    try:
        answer = parse_answer(text, ContractAnswer)
    except AnswerError as error:
        return rejected(error.failure, str(error))
    exact = answer.contract == scenario.truth["contract"]
    right = scenario.facts["fees"].get(answer.contract) == answer.fee
    return Verdict(
        reward=float(exact and right), parts={}, exact=exact, feasible=True, explanation="", failure=None
    )


def quote(scenario: Scenario, call: ToolCall) -> str:
    contract = call.arguments.get("contract") if isinstance(call.arguments, dict) else None
    if call.name != "quote" or not isinstance(contract, str) or contract not in scenario.facts["fees"]:
        raise ToolError("quote takes one contract, A to E")
    return f"fee {scenario.facts['fees'][contract]}"


def demonstrate_contracts(scenario: Scenario, rng: random.Random) -> tuple[Step, ...]:
    calls = [Step(text="", call=ToolCall(name="quote", arguments={"contract": name})) for name in "ABCDE"]
    return (*calls, Step(text=json.dumps(solve_contracts(scenario))))


def answer_cheapest_of(names: Sequence[str]) -> Baseline:
    def play(scenario: Scenario, rng: random.Random) -> str:
        fees: dict[str, int] = scenario.facts["fees"]
        best = min(names, key=fees.__getitem__)
        return json.dumps({"contract": best, "fee": fees[best]})

    return play


LEGAL = Family(
    name="legal",
    role="legal",
    generate=generate_contracts,
    verify=verify_contracts,
    solve=solve_contracts,
    certify=lambda s: (solve_contracts(s)["fee"], sorted(s.facts["fees"].values())[0]),
    call_tool=quote,
    demonstrate=demonstrate_contracts,
    baselines={
        "random": lambda s, rng: json.dumps({"contract": rng.choice("ABCDE"), "fee": rng.randint(10, 99)}),
        "constant": lambda s, rng: '{"contract": "A", "fee": 20}',
        "greedy": answer_cheapest_of("ABC"),
    },
)


def test_a_family_from_outside_the_package_conforms() -> None:
    assert check(LEGAL) == []


NOTHING: dict[str, Any] = {}


def pay_anyway(is_paid: Callable[[Scenario, str], bool]) -> Family:
    """The good verifier, but texts that `is_paid(scenario, text)` names get a full reward."""

    def verify(scenario: Scenario, text: str) -> Verdict:
        if is_paid(scenario, text):
            return Verdict(reward=1.0, parts={}, exact=True, feasible=True, explanation="")
        return GOOD.verify(scenario, text)

    return replace(GOOD, verify=verify)


def first_object_only(scenario: Scenario, text: str) -> bool:
    start = text.find("{")
    answer = json.JSONDecoder().raw_decode(text[start:])[0] if start >= 0 and "}" in text[start:] else None
    return isinstance(answer, dict) and answer == GOOD.solve(scenario)


def coerce_numbers(scenario: Scenario, text: str) -> bool:
    gold = GOOD.solve(scenario)
    return text == json.dumps(gold | {"cost": str(gold["cost"])})


def rewrite(**changes: Any) -> Family:
    """The good generator with its scenarios changed: a value, or a function of the scenario."""

    def generate(split: Split, seed: int, index: int, difficulty: int) -> Scenario:
        scenario = GOOD.generate(split, seed, index, difficulty)
        return replace(scenario, **{k: v(scenario) if callable(v) else v for k, v in changes.items()})

    return replace(GOOD, generate=generate)


def generate_by_sum(split: Split, seed: int, index: int, difficulty: int) -> Scenario:
    scenario = GOOD.generate("train", 0, seed + index, difficulty)
    return replace(scenario, split=split, seed=seed, index=index)


def generate_impurely(split: Split, seed: int, index: int, difficulty: int) -> Scenario:
    return (
        GOOD.generate(split, seed, index, difficulty)
        if random.random() < 0.5
        else GOOD.generate(split, seed, index, difficulty % 10 + 1)
    )


def generate_unchecked(split: Split, seed: int, index: int, difficulty: int) -> Scenario:
    return GOOD.generate(split, seed, index, min(difficulty, 10))


def verify_by_accident(scenario: Scenario, text: str) -> Verdict:
    verdict = GOOD.verify(scenario, text)
    return verdict if verdict.failure != "unknown_id" else NOTHING["missing"]


def verify_with_nan(scenario: Scenario, text: str) -> Verdict:
    verdict = GOOD.verify(scenario, text)
    return replace(verdict, reward=float("nan")) if verdict.failure == "unknown_id" else verdict


def verify_and_note(scenario: Scenario, text: str) -> Verdict:
    assert isinstance(scenario.facts, dict)
    scenario.facts["seen"] = True
    return GOOD.verify(scenario, text)


def call_unchecked(scenario: Scenario, call: ToolCall) -> str:
    return str(scenario.facts["structure"]["upgrades"][call.arguments["part"][0]])


def call_anything(scenario: Scenario, call: ToolCall) -> str:
    return GOOD.call_tool(
        scenario, replace(call, name="describe", arguments={"option": scenario.facts["option"]})
    )


def demonstrate_badly(scenario: Scenario, rng: random.Random) -> tuple[Step, ...]:
    return (*GOOD.demonstrate(scenario, rng)[:-1], Step(text='{"option": "A"}'))


def demonstrate_unknown_tool(scenario: Scenario, rng: random.Random) -> tuple[Step, ...]:
    steps = GOOD.demonstrate(scenario, rng)
    return (replace(steps[0], call=ToolCall(name="guess", arguments={})), *steps[1:])


def leak(scenario: Scenario) -> str:
    return f"{scenario.brief}\nHint {GOOD.solve(scenario)['cost']}."


def generate_without_difficulty(split: Split, seed: int, index: int, difficulty: int) -> Scenario:
    """The same case at every difficulty."""
    return replace(generate_contracts(split, seed, index, 1), difficulty=difficulty)


FAULTS: dict[str, tuple[str, Family]] = {
    "accepts bad coordinates": ("coordinates", replace(GOOD, generate=generate_unchecked)),
    "another family's name": ("coordinates", rewrite(family="coo")),
    "global randomness": ("purity", replace(GOOD, generate=generate_impurely)),
    "seeding by seed + index": ("splits", replace(GOOD, generate=generate_by_sum)),
    "one case for all difficulties": ("neighbours", replace(GOOD, generate=generate_without_difficulty)),
    "gold scores 0.9": (
        "gold",
        replace(GOOD, verify=lambda s, t: replace(v := GOOD.verify(s, t), reward=v.reward * 0.9)),
    ),
    "second method disagrees": ("certificate", replace(GOOD, certify=lambda s: (1.0, 1.0 + s.index % 2))),
    "pays the empty answer": ("zeros", pay_anyway(lambda s, t: not t)),
    "pays the copied brief": ("zeros", pay_anyway(lambda s, t: t == s.brief)),
    "reads the first of two answers": ("zeros", pay_anyway(first_object_only)),
    "coerces text to numbers": ("zeros", pay_anyway(coerce_numbers)),
    "does not check a figure": (
        "figures",
        pay_anyway(lambda s, t: GOOD.verify(s, t).parts.get("figures", 0) > 0.4 and GOOD.verify(s, t).exact),
    ),
    "verifier raises": ("totality", replace(GOOD, verify=verify_by_accident)),
    "verifier returns NaN": ("totality", replace(GOOD, verify=verify_with_nan)),
    "verifier writes to the facts": ("mutation", replace(GOOD, verify=verify_and_note)),
    "tool raises KeyError": ("tools", replace(GOOD, call_tool=call_unchecked)),
    "tool answers to any name": ("tools", replace(GOOD, call_tool=call_anything)),
    "brief holds the answer": ("brief", rewrite(brief=leak)),
    "brief holds the gold text": ("brief", rewrite(brief=lambda s: s.brief + json.dumps(GOOD.solve(s)))),
    "demonstration ends wrongly": ("demonstrations", replace(GOOD, demonstrate=demonstrate_badly)),
    "demonstration calls no real tool": (
        "demonstrations",
        replace(GOOD, demonstrate=demonstrate_unknown_tool),
    ),
    "optimal calls overstated": ("demonstrations", rewrite(optimal_tool_calls=99)),
    "optimal calls understated": ("demonstrations", rewrite(optimal_tool_calls=0)),
    "constant beats greedy": (
        "baselines",
        replace(GOOD, baselines=dict(GOOD.baselines) | {"greedy": GOOD.baselines["random"]}),
    ),
    "no baselines": ("baselines", replace(GOOD, baselines={})),
    "generator raises": ("generate", replace(GOOD, generate=lambda *a, **k: NOTHING["missing"])),
    "facts are not JSON": ("generate", rewrite(facts=lambda s: dict(s.facts) | {"bad": {1, 2}})),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_reported(fault: str) -> None:
    name, family = FAULTS[fault]
    problems = check(family, count=12, difficulties=(1, 2, 3))
    assert any(problem.startswith(f"{name}: ") for problem in problems), problems


def test_every_check_has_a_planted_fault() -> None:
    assert {name for name, _ in FAULTS.values()} == set(CHECKS) | {"generate", "mutation"}


def test_mutants_change_one_inner_value_each() -> None:
    answer = {"a": 1, "b": [2, {"c": 3}]}
    mutants = list(mutate_values(answer, lambda value: [9] if isinstance(value, int) else []))
    assert mutants == [
        {"a": 9, "b": [2, {"c": 3}]},
        {"a": 1, "b": [9, {"c": 3}]},
        {"a": 1, "b": [2, {"c": 9}]},
    ]
    assert answer == {"a": 1, "b": [2, {"c": 3}]}

"""Every whole job keeps the family contract and has ten levels, and every rule of its text decides cases."""

import copy
import json
import random
from collections.abc import Callable
from itertools import pairwise
from statistics import mean
from typing import Any

import pytest

from scenarios.base import Scenario
from scenarios.conformance import check
from scenarios.jobs import allocation, architecture, bill, threats, tradeoff
from scenarios.jobs.job import ESCALATION_SHARE, NoCaseError
from scenarios.tasks.registry import JOBS, TASK_FAMILIES, TASK_ROLES

Facts = dict[str, Any]
LEVELS = range(1, 11)
ESCALATED: dict[str, Callable[[Scenario], bool]] = {
    "architecture": lambda case: case.truth["design"] == architecture.NONE,
    "allocation": lambda case: not case.truth["plan"],
    "threats": lambda case: case.truth["escalate"],
    "bill": lambda case: not case.truth["tiers"],
    "tradeoff": lambda case: case.truth["escalate"],
}


def draw_cases(name: str, difficulty: int, count: int) -> list[Scenario]:
    return [TASK_FAMILIES[name].generate("train", 5, index, difficulty) for index in range(count)]


def score(name: str, baseline: str, cases: list[Scenario], seed: int = 0) -> list[float]:
    family = TASK_FAMILIES[name]
    play = family.baselines[baseline]
    return [family.verify(case, play(case, random.Random(f"{seed}/{case.index}"))).reward for case in cases]


@pytest.mark.parametrize("name", JOBS)
def test_job_keeps_the_family_contract(name: str) -> None:
    assert check(TASK_FAMILIES[name], count=30) == []


@pytest.mark.parametrize("name", JOBS)
def test_example_in_the_mandate_is_an_answer_of_the_schema(name: str) -> None:
    """The last JSON object of the mandate parses, so that the text promises what the parser takes."""
    role = TASK_ROLES[name]
    start = role.mandate.rindex("another case:") + len("another case:")
    role.answer.model_validate(json.loads(role.mandate[start:]))


@pytest.mark.parametrize("name", JOBS)
def test_rule_of_thumb_falls_from_level_to_level_and_chance_earns_little(name: str) -> None:
    """Pairs of neighbouring levels are pooled: 80 cases a pair bound the error of a mean by about .05."""
    cases = {level: draw_cases(name, level, 40 if level < 9 else 25) for level in LEVELS}
    by_rule = [
        mean(score(name, "greedy", cases[level]) + score(name, "greedy", cases[level + 1]))
        for level in range(1, 10, 2)
    ]
    assert by_rule[0] > 0.8
    assert by_rule[-1] < 0.62
    assert all(later < earlier + 0.05 for earlier, later in pairwise(by_rule))
    for level in range(3, 11):
        assert mean(score(name, "random", cases[level])) <= 0.16
    for level in LEVELS:
        groups = [score(name, "random", cases[level][:20], seed) for seed in range(8)]
        differ = [len(set(rewards)) > 1 for rewards in zip(*groups, strict=True)]
        assert mean(differ) >= 0.5


@pytest.mark.parametrize("name", JOBS)
def test_escalation_is_rare_and_no_single_number_of_the_text_tells_it(name: str) -> None:
    """A threshold on one limit of the brief does not tell the escalated cases from the others."""
    cases = draw_cases(name, 4, 300)
    escalated = [ESCALATED[name](case) for case in cases]
    assert 0.04 <= mean(escalated) <= 0.13, f"drawn with share {ESCALATION_SHARE}"
    limits = [key for key in ("budget", "target", "appetite", "average", "latency") if key in cases[0].facts]
    for key in limits:
        values = [case.facts[key] for case in cases]
        for threshold in sorted(set(values)):
            above = [value >= threshold for value in values]
            hits = mean(a for a, e in zip(above, escalated, strict=True) if e)
            false = mean(a for a, e in zip(above, escalated, strict=True) if not e)
            assert max(hits + 1 - false, false + 1 - hits) / 2 < 0.7


@pytest.mark.parametrize("name", JOBS)
def test_second_method_notices_an_oracle_that_is_off_by_one(name: str) -> None:
    family = TASK_FAMILIES[name]
    wrong: dict[str, Callable[[Facts], None]] = {
        "architecture": lambda truth: truth.update(cost=truth["cost"] + 1),
        "allocation": lambda truth: truth.update(cost=truth["cost"] + 1),
        "threats": lambda truth: truth.update(left=truth["left"] + 1),
        "bill": lambda truth: truth.update(cost=truth["cost"] + 1),
        "tradeoff": lambda truth: truth.update(package="A" if truth["package"] != "A" else "B", extras=[]),
    }
    for case in [case for case in draw_cases(name, 3, 30) if not ESCALATED[name](case)][:10]:
        value, second = family.certify(case)
        assert value == second
        truth = copy.deepcopy(dict(case.truth))
        wrong[name](truth)
        changed = Scenario(**{**{f: getattr(case, f) for f in case.__slots__}, "truth": truth})
        value, second = family.certify(changed)
        assert value != second


def _edit(change: Callable[[Facts], None]) -> Callable[[Facts], Facts]:
    def edited(facts: Facts) -> Facts:
        changed = copy.deepcopy(facts)
        change(changed)
        return changed

    return edited


def _each(group: str, change: Callable[[Facts], Any]) -> Callable[[Facts], Facts]:
    def change_all(facts: Facts) -> None:
        for entry in facts[group] if isinstance(facts[group], list) else facts[group].values():
            change(entry)

    return _edit(change_all)


def best_architecture(facts: Facts) -> Any:
    for cost, letter, counts in architecture.list_by_cost(facts):
        if cost > facts["budget"]:
            return None
        if architecture.find_availability(facts, letter, counts) >= facts["target"]:
            return letter, counts
    return None


def best_allocation(facts: Facts) -> Any:
    try:
        tried, best = allocation.search(facts, 400)
    except NoCaseError:
        return "several"
    return None if best is None else (tried[best][1], tried[best][2])


def best_threats(facts: Facts) -> Any:
    risks = threats.find_risks(facts)
    found = threats.find_best(facts, risks)
    return risks, found[0][2] if found else None


def best_bill(facts: Facts) -> Any:
    try:
        _, (cost, choice) = bill.search(facts, 3000)
    except NoCaseError:
        return "several"
    return choice if cost <= facts["budget"] else None


def best_tradeoff(facts: Facts) -> Any:
    outcomes = tradeoff.list_open(facts)
    return tradeoff.rank(facts, outcomes)[0][1] if outcomes else None


def _drop_failover(facts: Facts) -> None:
    for design in facts["designs"].values():
        design["steps"] = [step[:1] for step in design["steps"]]


# (job, level from which the rule is there, the rule, the case without it)
RULES = [
    ("architecture", 3, "load", _each("loads", lambda load: load.update(requests=1))),
    ("architecture", 3, "latency", _edit(lambda facts: facts.update(latency=10**6))),
    ("architecture", 3, "budget", _edit(lambda facts: facts.update(budget=10**6))),
    ("architecture", 6, "failover", _edit(_drop_failover)),
    ("architecture", 8, "cache", _each("loads", lambda load: load.update(cached=0))),
    ("allocation", 3, "deadlines", _each("packages", lambda package: package.pop("deadline", None))),
    ("allocation", 3, "order", _each("packages", lambda package: package.update(after=[]))),
    ("allocation", 3, "free from", _each("people", lambda person: person.update({"from": 1}))),
    ("allocation", 6, "absence", _each("people", lambda person: person.pop("absent", None))),
    ("allocation", 8, "sites", _each("packages", lambda package: package.pop("site", None))),
    ("threats", 3, "appetite", _edit(lambda facts: facts.update(appetite=12))),
    ("threats", 3, "budget", _edit(lambda facts: facts.update(budget=10**6))),
    ("threats", 3, "incidents", _each("assets", lambda asset: asset.update(incidents=0))),
    ("threats", 7, "covering", _edit(lambda facts: facts.pop("covers", None))),
    ("threats", 8, "spreading", _each("threats", lambda threat: threat.pop("spreads", None))),
    ("bill", 3, "floors", _each("services", lambda service: service.update(floor=0))),
    ("bill", 3, "average", _edit(lambda facts: facts.update(average=0))),
    ("bill", 4, "commitments", _each("services", lambda service: service.pop("commit", None))),
    ("bill", 4, "fees", _each("services", lambda service: service.pop("present", None))),
    ("bill", 6, "rebates", _edit(lambda facts: facts.pop("rebates", None))),
    ("bill", 9, "steps", _each("services", lambda service: service.pop("step", None))),
    ("tradeoff", 4, "vetoes", _each("seats", lambda seat: seat.pop("vetoes", None))),
    ("tradeoff", 4, "validity", _each("seats", lambda seat: seat.update(limit=-1) if "limit" in seat else 0)),
    ("tradeoff", 4, "walk-away", _each("seats", lambda seat: seat.update(leaves_below=0))),
    ("tradeoff", 6, "weights", _each("seats", lambda seat: seat.pop("weight", None))),
    ("tradeoff", 6, "budget", _edit(lambda facts: facts.update(budget=10**6))),
]
SOLVERS = {
    "architecture": best_architecture,
    "allocation": best_allocation,
    "threats": best_threats,
    "bill": best_bill,
    "tradeoff": best_tradeoff,
}


@pytest.mark.parametrize(("name", "level", "rule", "leave_out"), RULES, ids=[f"{r[0]}-{r[2]}" for r in RULES])
def test_who_overlooks_a_rule_is_wrong(
    name: str, level: int, rule: str, leave_out: Callable[[Facts], Facts]
) -> None:
    """Leaving one rule out changes the best answer in some of 60 cases: no rule of the text is idle."""
    solver = SOLVERS[name]
    cases = [dict(case.facts) for case in draw_cases(name, level, 60)]
    changed = [solver(leave_out(facts)) != solver(facts) for facts in cases]
    assert sum(changed) >= 2, f"{rule} never matters"


@pytest.mark.parametrize("name", JOBS)
def test_answer_that_breaks_a_limit_earns_at_most_a_tenth(name: str) -> None:
    family = TASK_FAMILIES[name]
    for case in draw_cases(name, 5, 30):
        for seed in range(6):
            answer = family.baselines["random"](case, random.Random(seed))
            verdict = family.verify(case, answer)
            assert verdict.feasible or verdict.reward <= 0.1
            assert verdict.exact == (verdict.reward == 1.0)

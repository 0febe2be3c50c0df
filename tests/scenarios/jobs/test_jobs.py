"""Every whole job keeps the family contract and has ten levels, and every rule of its text decides cases."""

import copy
import json
import random
from collections.abc import Callable
from itertools import combinations, pairwise
from statistics import mean
from typing import Any

import pytest

from benchmarks.scenarios.whole_jobs import RULES, count_changed, score
from scenarios.base import Scenario
from scenarios.conformance import check
from scenarios.jobs import architecture
from scenarios.jobs.job import ESCALATION_SHARES
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
    for level in LEVELS:
        groups = [score(name, "random", cases[level], seed) for seed in range(8)]
        if level >= 3:
            assert mean(map(mean, groups)) <= 0.15
        differ = [len(set(rewards)) > 1 for rewards in zip(*groups, strict=True)]
        assert mean(differ) >= 0.5


@pytest.mark.parametrize("name", JOBS)
def test_escalation_is_rare_and_no_single_number_of_the_text_tells_it(name: str) -> None:
    """A threshold on one limit of the brief does not tell the escalated cases from the others."""
    cases = draw_cases(name, 4, 300)
    escalated = [ESCALATED[name](case) for case in cases]
    assert 0.05 <= mean(escalated) <= 0.15, f"drawn with share {ESCALATION_SHARES[3]}"
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


@pytest.mark.parametrize("level", [1, 4, 8])
def test_no_other_order_of_work_is_as_good_as_the_allocated_one(level: int) -> None:
    """Two packages of one plan that change places, people and days, never make another best plan."""
    family = TASK_FAMILIES["allocation"]
    for case in draw_cases("allocation", level, 80):
        plan = case.truth["plan"]
        for one, other in combinations(range(len(plan)), 2):
            swapped = copy.deepcopy(plan)
            swapped[one]["package"], swapped[other]["package"] = plan[other]["package"], plan[one]["package"]
            assert not family.verify(case, json.dumps({"plan": swapped})).exact


@pytest.mark.parametrize(("name", "level", "rule", "leave_out"), RULES, ids=[f"{r[0]}-{r[2]}" for r in RULES])
def test_who_overlooks_a_rule_is_wrong(
    name: str, level: int, rule: str, leave_out: Callable[[Facts], Facts]
) -> None:
    """Leaving one rule out changes the best answer in some of 60 cases: no rule of the text is idle."""
    assert count_changed(name, leave_out, draw_cases(name, level, 60)) >= 2, f"{rule} never matters"


@pytest.mark.parametrize("name", JOBS)
def test_answer_that_breaks_a_limit_earns_at_most_a_tenth(name: str) -> None:
    family = TASK_FAMILIES[name]
    for case in draw_cases(name, 5, 30):
        for seed in range(6):
            answer = family.baselines["random"](case, random.Random(seed))
            verdict = family.verify(case, answer)
            assert verdict.feasible or verdict.reward <= 0.1
            assert verdict.exact == (verdict.reward == 1.0)

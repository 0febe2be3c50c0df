"""Role reward: hand-computed totals of both presets, and the ways in which it must not pay."""

import ast
import inspect
import json
from typing import Any

import pytest

import roles.base
from roles.base import FORMAT_FAILURES
from roles.errors import UserError
from scenarios.base import Verdict, rejected
from scenarios.registry import FAMILIES
from scenarios.rewards import PRESETS, role_reward

EXACT = Verdict(reward=1.0, parts={}, exact=True, feasible=True, explanation="")
HALF = Verdict(reward=0.5, parts={}, exact=False, feasible=True, explanation="", failure="suboptimal")
COUNTS: dict[str, Any] = {
    "num_steps": 4,
    "optimal_steps": 4,
    "max_steps": 8,
    "num_calls": 3,
    "num_valid_calls": 3,
}


def test_default_preset_pays_every_component_for_short_exact_work() -> None:
    assert role_reward(EXACT, **COUNTS) == pytest.approx(
        {"correctness": 1.0, "efficiency": 0.15, "tool_quality": 0.2, "unnecessary_step": 0.0, "total": 1.35}
    )


def test_efficiency_only_for_an_exact_answer_within_the_optimal_steps() -> None:
    assert role_reward(HALF, **COUNTS)["efficiency"] == 0
    late = role_reward(EXACT, **COUNTS | {"num_steps": 6})
    assert late["efficiency"] == 0
    assert late["unnecessary_step"] == pytest.approx(-0.2)
    assert late["total"] == pytest.approx(1.0 + 0.2 - 0.2)


def test_tool_quality_is_the_share_of_valid_calls() -> None:
    assert role_reward(EXACT, **COUNTS | {"num_valid_calls": 1})["tool_quality"] == pytest.approx(0.2 / 3)
    assert role_reward(EXACT, **COUNTS | {"num_calls": 0, "num_valid_calls": 0})["tool_quality"] == 0


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("verdict", [HALF, rejected("infeasible", ""), rejected("not_json", "")])
def test_no_call_pays_beside_an_answer_that_is_not_exact(preset: str, verdict: Verdict) -> None:
    def total(num_calls: int, num_valid_calls: int) -> float:
        counts = COUNTS | {"num_calls": num_calls, "num_valid_calls": num_valid_calls}
        counts["num_steps"] = num_calls + 1
        return role_reward(verdict, **counts, preset=preset)["total"]

    silent = total(0, 0)
    assert all(total(calls, valid) <= silent for calls in range(1, 8) for valid in range(calls + 1))


def test_total_is_clamped_at_zero() -> None:
    scored = role_reward(rejected("infeasible", ""), **COUNTS | {"num_steps": 8, "num_valid_calls": 0})
    assert scored["unnecessary_step"] == pytest.approx(-0.4)
    assert scored["total"] == 0


def test_the_list_of_format_failures_is_what_the_parser_raises() -> None:
    raised = {
        ast.literal_eval(node.args[0])
        for node in ast.walk(ast.parse(inspect.getsource(roles.base)))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "AnswerError"
    }
    assert raised == set(FORMAT_FAILURES)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("failure", FORMAT_FAILURES)
def test_an_answer_that_does_not_parse_earns_nothing_however_good_the_calls(
    preset: str, failure: str
) -> None:
    assert role_reward(rejected(failure, ""), **COUNTS, preset=preset)["total"] == 0


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("role", sorted(FAMILIES))
def test_words_after_the_right_answer_earn_nothing(role: str, preset: str) -> None:
    family = FAMILIES[role]
    scenario = family.generate("train", seed=0, index=0, difficulty=1)
    gold = json.dumps(family.solve(scenario))
    assert role_reward(family.verify(scenario, gold), **COUNTS, preset=preset)["total"] > 1
    wordy = family.verify(scenario, f"{gold} That is all.")
    assert role_reward(wordy, **COUNTS, preset=preset)["total"] == 0


def test_rlvr_pays_format_and_charges_steps_of_exact_answers() -> None:
    exact = role_reward(EXACT, **COUNTS, preset="rlvr")
    assert exact == pytest.approx({"correctness": 1.0, "format": 0.1, "step": -0.08, "total": 1.02})
    half = role_reward(HALF, **COUNTS, preset="rlvr")
    assert half == pytest.approx({"correctness": 0.5, "format": 0.1, "step": 0.0, "total": 0.6})
    wrong = role_reward(rejected("infeasible", ""), **COUNTS, preset="rlvr")
    assert wrong["total"] == pytest.approx(0.1)


def test_weights_override_the_preset_and_reach_the_total() -> None:
    scored = role_reward(EXACT, **COUNTS, weights={"efficiency": 0.0, "tool_quality": 1})
    assert scored["efficiency"] == 0
    assert scored["total"] == pytest.approx(2.0)
    assert PRESETS["default"]["tool_quality"] == 0.2


@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf"), "0.2", True, None])
def test_unusable_weights_are_a_user_error(value: Any) -> None:
    with pytest.raises(UserError, match="efficiency"):
        role_reward(EXACT, **COUNTS, weights={"efficiency": value})


def test_unknown_names_are_a_user_error_with_the_nearest_match() -> None:
    with pytest.raises(UserError, match="did you mean 'rlvr'"):
        role_reward(EXACT, **COUNTS, preset="rvlr")
    with pytest.raises(UserError, match="did you mean 'efficiency'"):
        role_reward(EXACT, **COUNTS, weights={"eficiency": 1.0})


@pytest.mark.parametrize("change", [{"num_valid_calls": 4}, {"max_steps": 0}, {"num_steps": -1}])
def test_impossible_counts_are_our_bug(change: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="impossible counts"):
        role_reward(EXACT, **COUNTS | change)

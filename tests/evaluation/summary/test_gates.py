"""Gates: a healthy summary passes all of them, each planted fault fails exactly its own."""

import copy
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest

from evaluation.summary.gates import (
    MEASURED_GATES,
    RunGate,
    check_gates,
    failed_gates,
    unjudged_gates,
)
from roles.team import TEAM_ROLES

Summary = dict[str, Any]


def stage(mean: float, n: int = 400) -> dict[str, Any]:
    return {"mean": mean, "low": mean - 0.02, "high": mean + 0.02, "n": n, "greedy": mean}


def change(mean: float, half_width: float = 0.02) -> dict[str, float]:
    return {"mean": mean, "low": mean - half_width, "high": mean + half_width}


def healthy() -> Summary:
    role = {
        "untrained": stage(0.05),
        "sft": stage(0.6),
        "grpo": stage(0.7),
        "marl": stage(0.69),
        "random": stage(0.1),
        "oracle": {"mean": 1.0, "low": 1.0, "high": 1.0, "n": 400, "greedy": None},
        "paired": {
            "sft-untrained": change(0.55),
            "grpo-sft": change(0.1),
            "grpo-sft_greedy": change(0.03),
            "marl-grpo": change(-0.01),
            "marl-heuristic": change(0.05),
            "marl-grpo_greedy": change(0.0),
        },
    }
    team = {name: stage(0.6, n=600) for name in ("random", "oracle", "untrained", "sft", "grpo", "marl")}
    paired = {"marl-grpo": change(0.1), "marl-grpo_greedy": change(0.12)}
    return {
        "roles": {name: copy.deepcopy(role) for name in TEAM_ROLES},
        "team": {**team, "paired": paired},
        "weights_changed": {name: dict.fromkeys(TEAM_ROLES, True) for name in ("sft", "grpo", "marl")},
        "signal": {name: dict.fromkeys(TEAM_ROLES, 0.4) for name in ("grpo", "marl")},
    }


def failures(summary: Summary) -> list[str]:
    return [gate.name for gate in check_gates(summary) if gate.passed is False]


def test_a_healthy_summary_passes_every_gate() -> None:
    gates = check_gates(healthy())
    assert [gate.name for gate in gates if not gate.passed] == []
    assert len({gate.name for gate in gates}) == len(gates) == 10
    assert all(gate.detail for gate in gates)


def put(*path: str, value: object) -> Callable[[Summary], None]:
    def plant(summary: Summary) -> None:
        target: Any = summary
        for key in path[:-1]:
            target = target[key]
        target[path[-1]] = value

    return plant


def both(*plants: Callable[[Summary], None]) -> Callable[[Summary], None]:
    def plant(summary: Summary) -> None:
        for one in plants:
            one(summary)

    return plant


@pytest.mark.parametrize(
    ("plant", "gate"),
    [
        (put("roles", "cto", "sft", "low", value=0.12), "sft_above_random"),
        (put("roles", "coo", "random", "high", value=0.6), "sft_above_random"),
        (put("roles", "risk", "paired", "marl-heuristic", value=change(0.01)), "roles_above_heuristic"),
        (put("roles", "risk", "paired", "grpo-sft", value=change(-0.05)), "grpo_above_sft"),
        (
            both(
                put("roles", "cto", "paired", "grpo-sft", value=change(0.01)),
                put("roles", "coo", "paired", "grpo-sft", value=change(0.01)),
            ),
            "grpo_above_sft",
        ),
        (put("roles", "cost", "paired", "grpo-sft_greedy", "mean", value=-0.021), "grpo_greedy_kept"),
        (put("team", "paired", "marl-grpo", value=change(0.049)), "team_gain"),
        (put("team", "paired", "marl-grpo", value=change(0.06, 0.07)), "team_gain"),
        (put("team", "paired", "marl-grpo_greedy", value=change(0.04)), "team_gain"),
        (put("roles", "reconcile", "paired", "marl-grpo", value=change(-0.051)), "own_scores_kept"),
        (put("roles", "risk", "oracle", "mean", value=0.9999), "oracle_is_one"),
        (put("weights_changed", "marl", "coo", value=False), "weights_changed"),
        (put("weights_changed", "sft", "coo", value="yes"), "weights_changed"),
        (put("signal", "grpo", "cost", value=0.0), "gradient_signal"),
        (put("signal", "marl", "cto", value=0.0), "gradient_signal"),
        (put("signal", "marl", "cto", value=float("nan")), "gradient_signal"),
    ],
)
def test_a_planted_fault_fails_exactly_its_gate(plant: Callable[[Summary], None], gate: str) -> None:
    summary = healthy()
    plant(summary)
    assert failures(summary) == [gate]


@pytest.mark.parametrize("owner", [("roles", "risk", "grpo"), ("team", "marl")])
def test_too_few_scenarios_leave_measured_gates_unjudged(owner: tuple[str, ...]) -> None:
    summary = healthy()
    put(*owner, "n", value=299)(summary)
    put("roles", "cto", "paired", "grpo-sft", value=change(-0.5))(summary)  # would be red
    put("roles", "cto", "oracle", "mean", value=0.5)(summary)  # is red with any number of scenarios
    summary["gates"] = [asdict(gate) for gate in check_gates(summary)]
    assert failed_gates(summary) == ["oracle_is_one"]
    assert unjudged_gates(summary) == list(MEASURED_GATES)
    assert "too few scenarios: smallest n >= 300: 299" in summary["gates"][0]["detail"]


def test_one_role_may_stay_level_under_grpo() -> None:
    summary = healthy()
    summary["roles"]["cto"]["paired"]["grpo-sft"] = change(-0.01)
    assert failures(summary) == []


def test_limits_themselves_pass() -> None:
    summary = healthy()
    summary["roles"]["cto"]["paired"]["grpo-sft_greedy"]["mean"] = -0.02
    summary["roles"]["cto"]["paired"]["marl-grpo"]["mean"] = -0.05
    summary["team"]["paired"]["marl-grpo"] = change(0.05)
    summary["roles"]["cto"]["sft"]["n"] = 300
    assert failures(summary) == []


@pytest.mark.parametrize("role", TEAM_ROLES)
def test_a_role_that_was_left_out_fails_every_role_gate(role: str) -> None:
    summary = healthy()
    del summary["roles"][role]
    assert failures(summary) == [
        "sft_above_random", "grpo_above_sft", "grpo_greedy_kept", "roles_above_heuristic", "own_scores_kept",
        "enough_scenarios", "oracle_is_one",
    ]  # fmt: skip


def test_an_empty_summary_fails_everything_and_says_what_is_missing() -> None:
    gates = check_gates({})
    assert not any(gate.passed for gate in gates)
    assert all(gate.detail.startswith("missing: ") for gate in gates)


def test_a_stage_that_was_not_run_is_named() -> None:
    summary = healthy()
    del summary["team"]["paired"]["marl-grpo_greedy"]
    gate = next(gate for gate in check_gates(summary) if gate.name == "team_gain")
    said = "team.paired has no 'marl-grpo_greedy'; did you mean 'marl-grpo'?"
    assert gate == RunGate(name="team_gain", passed=False, detail="missing: " + said)


def test_failed_gates_looks_at_every_seed() -> None:
    def stored(seed: int, passed: bool) -> Summary:
        return {"seed": seed, "gates": [{"name": "team_gain", "passed": passed, "detail": "x"}]}

    assert failed_gates(stored(0, False)) == ["team_gain"]
    assert failed_gates(stored(0, True) | {"seeds": [stored(0, True), stored(3, False)]}) == [
        "seed 3: team_gain"
    ]


def test_without_greedy_play_its_gates_are_not_judged() -> None:
    summary = healthy()
    for stages in (*summary["roles"].values(), summary["team"]):
        for name in ("sft", "grpo", "marl"):
            stages[name]["greedy"] = None
        for name in [name for name in stages["paired"] if name.endswith("_greedy")]:
            del stages["paired"][name]
    gates = {gate.name: gate for gate in check_gates(summary)}
    assert [name for name, gate in gates.items() if gate.passed is None] == ["grpo_greedy_kept", "team_gain"]
    assert "evaluation.greedy" in gates["team_gain"].detail
    del summary["team"]["grpo"]
    assert "team_gain" in failures(summary)  # not played at all

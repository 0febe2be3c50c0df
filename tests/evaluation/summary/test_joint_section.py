"""What a summary says of joint training: gap, hidden profiles, tries, peak and last, gradients."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from scored_outcomes import team_plays

from evaluation.scoring.outcomes import StagePlays, TeamOutcome
from evaluation.summary.run_summary import build_joint_section, describe_validation
from evaluation.summary.run_tables import run_table, team_tables

HIDDEN = (True, False) * 20
TEAM_ROW = {"low": 0.4, "high": 0.8, "greedy": None, "n": 40}


def team(stage: str, hidden_value: float, other_value: float, repeats: Sequence[Any] = ()) -> StagePlays:
    plays = team_plays(stage, (hidden_value, other_value) * 20)
    sampled = [
        replace(play, best_option=play.value > 0.5, hidden=flag)
        for play, flag in zip(plays.sampled, HIDDEN, strict=True)
        if isinstance(play, TeamOutcome)
    ]
    return replace(plays, sampled=sampled, repeats=[team_plays(stage, one).sampled for one in repeats])


def section(**fields: Any) -> dict[str, Any]:
    teams = {
        "grpo": team("grpo", 0.2, 0.8),
        "marl": team("marl", 0.6, 0.8, **fields),
        "oracle_searched": team("oracle_searched", 1.0, 1.0),
    }
    return build_joint_section(teams, [])


def test_the_gap_is_measured_to_the_searched_policy() -> None:
    gap = section()["gap"]["sampled"]
    assert (gap["before"], gap["after"], gap["ceiling"]) == pytest.approx((0.5, 0.7, 1.0))
    assert gap["mean"] == pytest.approx(0.4)
    assert "greedy" not in section()["gap"]  # no greedy play was stored


def test_hidden_profiles_are_counted_by_themselves() -> None:
    hidden = section()["hidden"]
    assert (hidden["n"], hidden["share"]) == (20, 0.5)
    assert hidden["stages"]["grpo"] == {"solved": 0.0, "value": pytest.approx(0.2)}
    assert hidden["stages"]["marl"] == {"solved": 1.0, "value": pytest.approx(0.6)}
    change = hidden["paired"]["marl-grpo"]
    assert (change["solved"], change["mean"]) == (1.0, pytest.approx(0.4))
    assert change["p_solved"] == pytest.approx(2 / 2**20)


def test_tries_at_the_first_cases_give_pass_k() -> None:
    passes = section(repeats=((1.0, 0.8), (1.0, 0.95)))["passes"]["marl"]
    # first case: .6, 1, 1; second: .8, .8, .95
    assert passes["n"] == 2
    assert passes["chances"] == pytest.approx([(2 / 3 + 1 / 3) / 2, (1 / 3 + 0) / 2, 0.0])


def test_peak_and_last_of_the_validations_are_told_apart() -> None:
    steps = [
        {"step": 5, "validation_reward": 0.5},
        {"step": 10, "validation_reward": 0.7, "gradient_mass/cto": 0.9, "gradient_mass/coo": 0.1},
        {"step": 15, "validation_reward": 0.6, "validation_fall": 0.1, "validation_fall_error": 0.02},
    ]
    found = describe_validation(steps)
    assert (found["peak"], found["peak_step"], found["last"], found["last_step"]) == (0.7, 10, 0.6, 15)
    assert (found["fall"], found["fall_error"]) == (0.1, 0.02)
    joint = build_joint_section({}, steps)
    assert joint["gradient_mass"] == {"cto": 0.9, "coo": 0.1}
    assert set(joint) == {"validation", "gradient_mass"}


def test_every_part_has_its_table_and_none_where_it_was_not_measured() -> None:
    steps = [{"step": 5, "validation_reward": 0.5, "gradient_mass/cto": 1.0}]
    joint = section(repeats=((1.0, 0.8),)) | build_joint_section({}, steps)
    summary = {
        "team": {"paired": {}, "grpo": TEAM_ROW | {"mean": 0.5}, "marl": TEAM_ROW | {"mean": 0.7}},
        "joint": joint,
        "seed": 7,
        "wall_s": 60.0,
        "gates": [{"name": "x", "passed": True}, {"name": "team_gain", "passed": False}],
    }
    team, *tables = team_tables(summary)
    assert team.title.startswith("Whole team")
    assert len(tables) == 6
    for table in tables:
        assert {len(row) for row in table.rows} == {len(table.titles)}
    (row,) = run_table(["first"], [summary]).rows
    assert row[:7] == ("first", "7", ".50 to .70", "-", "40 %", "0 % to 100 %", ".50, .50")
    assert row[7:] == ("1 of 2", "team_gain", "1.0 min")
    assert team_tables({"team": {}}) == []

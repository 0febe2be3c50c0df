"""Suites by name: their own verifier, questions that do not depend on the count, a run that answers them."""

import json
from pathlib import Path

import pytest
from scored_outcomes import TINY
from tiny_models import make_tiny_base

from emads.cli import main
from evaluation.scoring.external_tasks import read_suite
from roles.errors import UserError
from training.config.loading import load_config
from training.runs.run_folder import Run

NAME = "reasoning-gym"


def test_gold_is_right_and_the_package_s_partial_credit_is_not() -> None:
    reasoning_gym = pytest.importorskip("reasoning_gym")
    tasks, family = read_suite(NAME, 66)
    assert len(tasks.scenarios) + len(tasks.rejected) == 66
    sources = {scenario.facts["source"] for scenario in tasks.scenarios}
    assert len(sources) >= 30
    assert "countdown" not in sources  # its verifier evaluates the answer as an expression
    for scenario in tasks.scenarios:
        data = reasoning_gym.create_dataset(scenario.facts["source"], size=100, seed=0)
        gold = data[scenario.truth["item"]]["answer"]
        assert family.verify(scenario, json.dumps({"answer": gold})).reward == 1
        assert family.verify(scenario, json.dumps({"answer": f"{gold} or not"})).reward == 0
        assert family.verify(scenario, gold).failure == "not_json" or not gold.startswith("{")
        assert gold not in ("", scenario.brief)


def test_more_questions_begin_with_the_same_ones() -> None:
    pytest.importorskip("reasoning_gym")
    few, many = (read_suite(NAME, count)[0].scenarios for count in (10, 40))
    assert many[:10] == few


def test_a_run_answers_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("reasoning_gym")
    run = Run.create(tmp_path / "run", load_config(None, TINY))
    make_tiny_base(run.path)
    arguments = ["evaluate", str(run.path), "--suite", NAME, "--stage", "base", "--count", "3"]
    assert main(arguments) == 0
    assert "reasoning-gym-3: CTO after base" in capsys.readouterr().out
    assert len((run.path / "scores/tasks/reasoning-gym-3-base-cto.jsonl").read_text().splitlines()) >= 3


def test_a_wrong_name_and_a_missing_package_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="reasoning-gym"):
        read_suite("reasoning", 3)
    monkeypatch.setattr("evaluation.scoring.external_tasks.find_spec", lambda name: None)
    with pytest.raises(UserError, match="pip install reasoning-gym"):
        read_suite(NAME, 3)

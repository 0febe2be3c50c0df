"""External benchmarks: answers compared by GAIA's rules, bad rows named, a real run answers twice alike."""

import json
from pathlib import Path

import pytest
from scored_outcomes import TINY
from tiny_models import make_tiny_base

from emads.cli import main
from evaluation.scoring.external_tasks import FAMILY, is_same_answer, read_task_folder, verify
from evaluation.scoring.outcomes import OutcomeFile, RoleOutcome
from roles.errors import UserError
from training.config.loading import load_config
from training.runs.run_folder import Run


@pytest.mark.parametrize(
    ("answer", "expected", "same"),
    [
        ("1,250", "1250", True),
        ("$1250.0", "1250", True),
        ("1251", "1250", False),
        ("about 1250", "1250", False),
        ("Sea Gull!", "seagull", True),
        ("a seagull", "seagull", False),
        ("3, b ,c", "3.0; B; c", True),
        ("3, b", "3; b; c", False),
        ("b, 3", "3, b", False),
        ("new york, paris", "New  York,Paris", True),
        ("", "x", False),
        ("nan", "nan", True),  # a word like any other
        ("inf", "1", False),
        ("1e3", "1000", True),
        ("!!!", "...", False),
        ("x" * 30_000, "x", False),
    ],
)
def test_answers_are_compared_by_the_benchmarks_rules(answer: str, expected: str, same: bool) -> None:
    assert is_same_answer(answer, expected) is same


ROWS = [
    {"task_id": "a", "Question": "What is 6 * 7?", "Level": 1, "Final answer": "42", "file_name": ""},
    {"task_id": "b", "Question": "Which bird?", "Level": "2", "Final answer": "Sea gull", "file_name": ""},
    {"task_id": "c", "Question": "See the sheet.", "Level": 1, "Final answer": "1", "file_name": "c.xlsx"},
    {"task_id": "d", "Question": "No answer?", "Level": 3, "file_name": ""},
    ["not", "an", "object"],
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "gaia" / "validation"
    path.mkdir(parents=True)
    (path / "metadata.jsonl").write_text("\n".join(json.dumps(row) for row in ROWS) + "\n")
    (tmp_path / "gaia" / "plain.json").write_text(json.dumps([{"question": "1 + 1?", "answer": 2}]))
    return tmp_path / "gaia"


def test_rows_become_tasks_and_the_others_are_named(folder: Path) -> None:
    tasks = read_task_folder(folder)
    assert [(one.brief, one.truth["answer"], one.difficulty) for one in tasks.scenarios] == [
        ("1 + 1?", "2", 1),
        ("What is 6 * 7?", "42", 1),
        ("Which bird?", "Sea gull", 2),
    ]
    assert tasks.num_with_files == 1
    assert [one.split("metadata.jsonl ")[1] for one in tasks.rejected] == [
        "row 4: answer is missing",
        "row 5: not an object",
    ]
    assert len({one.key for one in tasks.scenarios}) == 3


def test_gold_scores_1_and_nothing_else_does(folder: Path) -> None:
    for scenario in read_task_folder(folder).scenarios:
        gold = json.dumps(FAMILY.solve(scenario))
        assert verify(scenario, gold).reward == 1
        for text in ("", scenario.brief, scenario.truth["answer"], '{"answer": ""}', gold + gold):
            assert verify(scenario, text).reward == 0


def test_unusable_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no folder"):
        read_task_folder(tmp_path / "none")
    with pytest.raises(UserError, match=r"no .json or .jsonl"):
        read_task_folder(tmp_path)
    (tmp_path / "x.jsonl").write_text("{")
    with pytest.raises(UserError, match=r"no usable question; .*x.jsonl row 1: not JSON"):
        read_task_folder(tmp_path)
    (tmp_path / "x.jsonl").write_text(json.dumps(ROWS[2]))
    with pytest.raises(UserError, match="come with a file"):
        read_task_folder(tmp_path)


def test_a_run_answers_a_folder_and_twice_alike(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "long.json").write_text(json.dumps([{"question": "word " * 3000, "answer": "1"}]))
    run = Run.create(tmp_path / "run", load_config(None, TINY))
    make_tiny_base(run.path)
    arguments = ["evaluate", str(run.path), "--tasks", str(folder), "--stage", "base", "--role", "risk"]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert "level 2" in shown
    assert "1 rows that come with a file" in shown
    file = run.path / "scores" / "tasks" / "gaia-base-risk.jsonl"
    outcomes = OutcomeFile(file, RoleOutcome).read()
    assert len(outcomes) == 4
    assert [(one.turns, one.truncated) for one in outcomes].count((0, True)) == 1  # longer than it reads
    content = file.read_bytes()
    file.unlink()
    assert main(arguments) == 0
    assert file.read_bytes() == content
    assert main([*arguments, "--again"]) == 2
    assert "--again does not go with --tasks or --suite" in capsys.readouterr().err

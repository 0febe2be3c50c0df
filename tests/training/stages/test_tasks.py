"""A solver of imported questions: tasks come back whole, two real steps of each stage, a sealed test."""

import hashlib
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from emads.cli import main
from evaluation.scoring.outcomes import read_stage
from roles.errors import UserError
from scenarios.registry import FAMILIES
from scenarios.tasks.imported import TaskSet, unseal_test
from scenarios.tasks.question_files import read_questions
from training.config.run_config import RunConfig
from training.data.folders.rows import check_families, encode_shard
from training.data.tasks import import_tasks, open_source, read_tasks, validate_data
from training.runs.run_folder import Run
from training.stages import sft, tasks
from training.stages.tasks import train_tasks

SETTINGS = {
    "model": {"hidden_size": 32, "num_layers": 1, "num_heads": 2, "intermediate_size": 48},
    "sft": {"max_steps": 2, "batch_size": 4},
    "grpo": {
        "max_steps": 2,
        "prompts_per_step": 2,
        "group_size": 2,
        "max_completion_tokens": 24,
        "max_turns": 3,
    },
    "evaluation": {"num_role_scenarios": 6},
}


def write_questions(path: Path, count: int = 60) -> Path:
    rows = [
        {
            "question": f"A box holds {n} pens. How many pens are in {n % 7 + 2} boxes?",
            "answer": f"{n}*{n % 7 + 2} = <<{n}*{n % 7 + 2}={n * (n % 7 + 2)}>>{n * (n % 7 + 2)}.\n"
            f"#### {n * (n % 7 + 2)}",
        }
        for n in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    import_tasks([write_questions(tmp_path / "pens.jsonl")], tmp_path / "pens", layout="gsm8k", name="pens")
    return tmp_path / "pens"


def test_tasks_come_back_as_they_were_imported(folder: Path, tmp_path: Path) -> None:
    written, _ = read_questions([tmp_path / "pens.jsonl"], "gsm8k")
    back = read_tasks(folder)
    with unseal_test() as key:
        for split in ("train", "validation", "test"):
            expected = TaskSet("pens", written).read(split, key)
            found = back.read(split, key)
            assert [(t.question, t.answer, t.check, t.steps, t.difficulty) for t in found] == [
                (t.question, t.answer, t.check, t.steps, t.difficulty) for t in expected
            ]
    with pytest.raises(UserError, match="sealed"):
        back.read("test")


def test_short_answers_keep_how_they_are_compared(tmp_path: Path) -> None:
    path = tmp_path / "qa.jsonl"
    rows = [{"question": f"Q{n}?", "answer": "Paris" if n % 2 else "1,250"} for n in range(12)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    import_tasks([path], tmp_path / "qa", layout="qa", name="qa")
    kinds = {task.answer: task.check.kind for task in read_tasks(tmp_path / "qa").read("train")}
    assert kinds == {"Paris": "exact", "1,250": "number"}


@pytest.mark.slow
def test_a_folder_is_trained_on_and_scored_once_on_its_sealed_test(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    run = Run.create(tmp_path / "run", RunConfig.model_validate(SETTINGS))
    scores = train_tasks(run, str(folder), said.append)
    assert [one.stage for one in scores] == ["untrained", "sft", "grpo"]
    with unseal_test() as key:
        num_tests = min(6, len(read_tasks(folder).read("test", key)))
    assert all(len(one.sampled) == len(one.greedy) == num_tests > 0 for one in scores)
    for stage in ("sft", "grpo"):
        assert run.read_payload(f"{stage}/solver")["steps"] == 2
    assert run.read_payload("sft/solver")["weights_changed"] is True
    logged = [(row.stage, row.step) for row in run.read_metrics()]
    assert {("sft/solver", 2), ("grpo/solver", 1), ("grpo/solver", 2)} <= set(logged)
    assert read_stage(run.path, "grpo", "solver") == scores[-1]
    monkeypatch.setattr(sft, "run_sft", None)  # calling it again would fail
    monkeypatch.setattr(tasks, "play_solo", None)
    assert train_tasks(Run.open(run.path), str(folder), said.append) == scores
    with pytest.raises(UserError, match="solver of other tasks"):
        train_tasks(run, "maths", said.append)


def test_an_imported_folder_is_validated_and_a_changed_row_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", str(folder)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "60 of 60 rows are clean"
    path = folder / "pens" / "train-00000.parquet"
    rows = pq.read_table(path).to_pylist()
    question = rows[3]["messages"][1]
    question["content"] = question["content"].replace("pens are in", "pans are in")
    rows[5]["brief"] = "How many pens?"
    content = encode_shard(rows)
    path.write_bytes(content)
    assert main(["validate", str(folder)]) == 2
    assert "train-00000.parquet is damaged" in capsys.readouterr().err
    index = json.loads((folder / "import.json").read_text())
    (listed,) = (shard for shard in index["shards"] if shard["path"] == "pens/train-00000.parquet")
    listed["sha256"] = hashlib.sha256(content).hexdigest()
    (folder / "import.json").write_text(json.dumps(index))
    found = {problem.row: problem.reason for problem in validate_data(folder).problems}
    assert found[3] == "messages differs from what its question and solution give"
    assert 5 in found


def test_generated_tasks_make_a_data_folder_like_any_family(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "data"
    options = ["--count", "12", "--difficulties", "1-3", "--out", str(out)]
    assert main(["generate", "--family", "lookup", "--family", "maths", *options]) == 0
    assert main(["validate", str(out)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "24 of 24 rows are clean"
    rows = pq.read_table(out / "maths" / "train-00000.parquet").to_pylist()
    assert {row["role"] for row in rows} == {"maths"}
    assert "calculator" in rows[0]["tools"][0]
    card = (out / "README.md").read_text()
    assert "| maths | train | 0 | 12 | 12 |" in card
    assert check_families(("all",)) == (*FAMILIES, "team")


def test_what_is_trained_on_is_played_by_the_solver(folder: Path) -> None:
    source = open_source(str(folder), seed=0, difficulties=(1,))
    assert source.role.tools[0].name == "calculator"
    scenario = source.draw("train", 1, None)[0]
    gold = json.dumps(source.family.solve(scenario))
    assert source.family.verify(scenario, gold).reward == 1.0
    with pytest.raises(UserError, match="sealed"):
        source.draw("test", 1, None)
    generated = open_source("lookup", seed=3, difficulties=(1, 2))
    assert [one.difficulty for one in generated.draw("train", 4, None)] == [1, 2, 1, 2]
    with pytest.raises(UserError, match="sealed"):
        generated.draw("test", 1, None)


DEMO = str(Path(__file__).parents[3] / "configs" / "schedules" / "tiny.yaml")


def test_the_command_and_its_mistakes(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "tasks", str(tmp_path / "r0"), "mathz", "--config", DEMO]) == 2
    assert "did you mean 'maths'?" in capsys.readouterr().err
    settings = [f"--set={a}.{b}={c}" for a, section in SETTINGS.items() for b, c in section.items()]
    one_step = [*settings, "--set=sft.max_steps=1", "--set=grpo.max_steps=0"]
    assert main(["train", "tasks", str(tmp_path / "r1"), str(folder), "--config", DEMO, *one_step]) == 0
    lines = capsys.readouterr().out.splitlines()
    table = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    assert [row[0] for row in table] == ["stage", "untrained", "sft"]


def test_a_solver_is_validated_watched_and_stopped_like_a_role(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = [f"--set={a}.{b}={c}" for a, section in SETTINGS.items() for b, c in section.items()]
    more = [
        "grpo.guards.validate_every=1",
        "grpo.guards.validation_scenarios=2",
        "model.gradient_checkpointing=true",
    ]
    run = tmp_path / "run"
    arguments = [
        "train",
        "tasks",
        str(run),
        str(folder),
        "--config",
        DEMO,
        *settings,
        *(f"--set={one}" for one in more),
    ]
    assert main(arguments) == 0
    rows = [row for row in Run.open(run).read_metrics("grpo/solver") if "validation_reward" in row.metrics]
    assert [row.step for row in rows] == [0, 1, 2]
    assert json.loads((run / "alarms" / "grpo" / "solver.json").read_text()) == {}
    shown = capsys.readouterr().err
    assert "sft/solver: 100 %" in shown
    assert "grpo/solver: 100 %" in shown

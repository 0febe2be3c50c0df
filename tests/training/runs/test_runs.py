"""Run folders: never mixed up, metrics that survive a kill, errors in one line."""

import json
import math
import multiprocessing
from pathlib import Path

import pytest

from roles.errors import UserError
from training.config.rl_config import GrpoConfig
from training.config.run_config import RunConfig, compute_digest, digest_values
from training.runs.run_folder import Run

OTHER = RunConfig(grpo=GrpoConfig(max_steps=20, max_turns=6))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run", RunConfig())


def test_a_run_opens_with_the_config_it_was_made_with(tmp_path: Path) -> None:
    Run.create(tmp_path / "a" / "run", OTHER)
    opened = Run.open(tmp_path / "a" / "run")
    assert opened.config == OTHER
    assert opened.digest == compute_digest(OTHER)


def test_another_config_is_refused_by_name_unless_resumed(run: Run) -> None:
    there = run.config.grpo.max_steps
    run.log("sft/cto", 1, {"loss": 1.0})
    with pytest.raises(UserError, match=rf"grpo.max_steps is {there} there, 20 here.*--resume"):
        Run.create(run.path, OTHER)
    assert Run.create(run.path, OTHER, resume=True).config == run.config
    assert Run.create(run.path, RunConfig()).config == run.config


def test_a_start_that_failed_leaves_the_folder_to_the_corrected_command(tmp_path: Path) -> None:
    wrong = Run.create(tmp_path / "run", RunConfig(name="wrong"))
    (wrong.path / "checkpoints" / "base").mkdir(parents=True)
    corrected = Run.create(tmp_path / "run", OTHER)
    assert Run.open(tmp_path / "run").config == corrected.config == OTHER
    assert corrected.digest == compute_digest(OTHER)


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(UserError, match="not a run folder"):
        Run.create(tmp_path, RunConfig())
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_kill_before_config_yaml_can_be_started_again(tmp_path: Path) -> None:
    (tmp_path / "provenance.json").write_text("{}")
    (tmp_path / ".tmp-config.yaml-77").write_text("nam")
    assert Run.create(tmp_path, OTHER).config == OTHER
    assert json.loads((tmp_path / "provenance.json").read_text())["config_sha256"] == compute_digest(OTHER)


@pytest.mark.parametrize("path", ["/dev/full/run", "/proc/self/run"])
def test_unwritable_paths_are_user_mistakes(path: str) -> None:
    with pytest.raises(UserError, match=f"cannot write run folder {path}"):
        Run.create(Path(path), RunConfig())


def test_opening_no_run_is_a_user_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no run in"):
        Run.open(tmp_path)


def test_provenance_tells_versions_and_seeds(run: Run) -> None:
    provenance = run.read_json("provenance.json")
    assert provenance["packages"]["pydantic"]
    assert provenance["seeds"] == {"run": 0, "data": 0}
    assert provenance["config_sha256"] == run.digest


def test_an_edited_config_is_named_before_any_weights_are_set_aside(run: Run) -> None:
    path = run.path / "config.yaml"
    path.write_text(path.read_text().replace("checkpoint_every: 0", "checkpoint_every: 7"))
    assert Run.open(run.path).digest == run.digest  # a key that has no part in the weights
    path.write_text(path.read_text().replace("seed: 0", "seed: 1", 1))
    with pytest.raises(UserError, match=r"config.yaml was edited after the run had begun.*--take-from"):
        _ = Run.open(run.path).digest


def test_metrics_come_back_in_order_and_by_stage(run: Run) -> None:
    run.log("sft", 1, {"loss": 0.5})
    run.log("grpo", 1, {"reward": 1})
    run.log("sft", 2, {"loss": 0.25})
    assert [(row.stage, row.step, row.metrics) for row in run.read_metrics()] == [
        ("sft", 1, {"loss": 0.5}),
        ("grpo", 1, {"reward": 1.0}),
        ("sft", 2, {"loss": 0.25}),
    ]
    assert [row.step for row in run.read_metrics("sft")] == [1, 2]


def test_non_finite_metrics_survive_as_strict_json(run: Run) -> None:
    run.log("sft", 1, {"a": math.nan, "b": math.inf, "c": -math.inf})

    def refuse(name: str) -> None:
        raise AssertionError(name)

    json.loads((run.path / "metrics.jsonl").read_text(), parse_constant=refuse)
    metrics = run.read_metrics()[0].metrics
    assert math.isnan(metrics["a"])
    assert (metrics["b"], metrics["c"]) == (math.inf, -math.inf)


def test_every_cut_of_the_last_line_loses_only_that_line(run: Run) -> None:
    for step in (1, 2, 3):
        run.log("sft", step, {"loss": step / 4})
    file = run.path / "metrics.jsonl"
    whole = file.read_bytes()
    last = whole.rfind(b"\n", 0, len(whole) - 1) + 1
    for cut in range(last, len(whole)):
        file.write_bytes(whole[:cut])
        assert [row.step for row in run.read_metrics()] == [1, 2]
        run.log("sft", 4, {"loss": 1.0})
        assert [row.step for row in run.read_metrics()] == [1, 2, 4]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{}",
        '{"stage": "sft", "step": 2, "time_s": 1.0, "metr',
        '{"stage": "sft", "step": "2", "time_s": 1.0, "metrics": {}}',
        '{"stage": "sft", "step": 2, "time_s": 1.0, "metrics": {"loss": "low"}}',
    ],
)
def test_corrupt_middle_lines_are_refused_with_file_and_line(run: Run, line: str) -> None:
    run.log("sft", 1, {"loss": 0.5})
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write(line + "\n")
    run.log("sft", 3, {"loss": 0.5})
    with pytest.raises(UserError, match=r"metrics.jsonl:2: corrupt metrics line"):
        run.read_metrics()


def test_a_full_disk_is_one_line_and_loses_nothing(run: Run) -> None:
    (run.path / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(UserError, match=r"cannot write metrics .*No space left"):
        run.log("sft", 1, {"loss": 0.5})


def log_many(path: Path, stage: str) -> None:
    run = Run.open(path)
    for step in range(200):
        run.log(stage, step, {"loss": 0.5})


def test_processes_do_not_mix_their_lines(run: Run) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=log_many, args=(run.path, stage)) for stage in ("a", "b")]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [row.step for row in run.read_metrics("a")] == list(range(200))
    assert [row.step for row in run.read_metrics("b")] == list(range(200))


def test_rewinding_drops_what_a_resumed_stage_logs_again(run: Run) -> None:
    for step in (1, 2, 3):
        run.log("sft", step, {"loss": math.nan})
        run.log("grpo", step, {"reward": 0.5})
    run.rewind_metrics("sft", 2)
    assert [row.step for row in run.read_metrics("sft")] == [1, 2]
    assert [row.step for row in run.read_metrics("grpo")] == [1, 2, 3]
    assert math.isnan(run.read_metrics("sft")[1].metrics["loss"])


def test_finished_stages_keep_their_payload(run: Run) -> None:
    assert not run.is_done("sft/cto")
    run.mark_done("sft/cto", {"exact": 0.9})
    assert run.is_done("sft/cto")
    assert not run.is_done("sft")
    assert Run.open(run.path).read_payload("sft/cto") == {"exact": 0.9}


def test_unfinished_or_damaged_stage_records_are_user_mistakes(run: Run) -> None:
    with pytest.raises(UserError, match="not finished"):
        run.read_payload("sft")
    run.mark_done("sft")
    (run.path / "stages" / "sft.json").write_text('{"stage": "sft", "pay')
    with pytest.raises(UserError, match=r"sft\.json is not valid JSON"):
        run.read_payload("sft")


def test_failed_json_writes_leave_the_old_content(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.write_json("evaluation/table.json", {"rows": 3})

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(UserError, match="No space left"):
        run.write_json("evaluation/table.json", {"rows": 4})
    assert run.read_json("evaluation/table.json") == {"rows": 3}
    assert [path.name for path in (run.path / "evaluation").iterdir()] == ["table.json"]


@pytest.mark.parametrize("name", ["../escape", "/etc/x", "a//b", "a/../b", ".hidden", ""])
def test_names_stay_inside_the_run(run: Run, name: str) -> None:
    with pytest.raises(ValueError, match="not a file name"):
        run.write_json(name, 1)


def test_a_key_that_a_later_version_adds_leaves_the_digest_of_a_stored_run(tmp_path: Path) -> None:
    made = Run.create(tmp_path / "run", OTHER)
    file = made.path / "config.yaml"
    lines = file.read_text().splitlines()
    without = [line for line in lines if not line.startswith("  max_failed_calls")]
    assert len(without) < len(lines)
    file.write_text("\n".join(without))
    older = Run.open(made.path)
    values = OTHER.model_dump(mode="json")
    del values["grpo"]["max_failed_calls"]
    made.write_json("provenance.json", {"config_sha256": digest_values(values)})
    digest = older.digest
    assert digest == digest_values(values)
    assert older.config == OTHER  # the key has its default

"""Data folders: verified rows, byte-identical, resumable, and corrupt rows named one by one."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from roles.errors import UserError
from roles.team import RECONCILER, SPECIALISTS
from scenarios.base import ToolCall
from scenarios.registry import FAMILIES
from training import datasets
from training.dataset_index import Shard
from training.dataset_rows import build_rows, check_families
from training.dataset_validation import validate_folder
from training.datasets import generate_folder

ROOT = Path(__file__).parent.parent


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "SCENARIOS_PER_SHARD", 10)


def hash_folder(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def read_rows(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return rows


def rewrite(path: Path, change: Callable[[list[dict[str, Any]]], object]) -> None:
    """Change the rows of a shard as a faulty program would: the Parquet file itself stays sound."""
    rows = read_rows(path)
    change(rows)
    pq.write_table(pa.Table.from_pylist(rows, schema=datasets.SCHEMA), path)


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_hold_a_true_transcript_whose_answer_is_gold(family: str) -> None:
    for index in range(5):
        (row,) = build_rows(family, "train", 0, index, 1)
        scenario = FAMILIES[family].generate("train", 0, index, 1)
        messages = json.loads(row["messages"])
        assert [message["role"] for message in messages[:2]] == ["system", "user"]
        assert messages[1]["content"] == row["brief"] == scenario.brief
        for call_turn, observation in zip(messages[2:-1:2], messages[3:-1:2], strict=True):
            function = call_turn["tool_calls"][0]["function"]
            call = ToolCall(name=function["name"], arguments=function["arguments"])
            assert FAMILIES[family].call_tool(scenario, call) == observation["content"]
        assert FAMILIES[family].verify(scenario, messages[-1]["content"]).exact
        assert FAMILIES[family].verify(scenario, row["answer"]).reward == pytest.approx(1.0)
        tools = [tool["function"]["name"] for tool in json.loads(row["tools"])]
        assert {m["tool_calls"][0]["function"]["name"] for m in messages if "tool_calls" in m} <= set(tools)


def test_a_team_case_gives_one_row_per_seat() -> None:
    rows = build_rows("team", "train", 0, 3, 1)
    assert [row["role"] for row in rows] == [*SPECIALISTS, RECONCILER]
    assert {row["key"] for row in rows} == {"team/train/0/3/1"}
    assert [len(json.loads(row["messages"])) for row in rows] == [5, 5, 5, 5, 3]
    assert all(json.loads(row["answer"]) for row in rows)


def test_rows_hold_no_truth() -> None:
    (row,) = build_rows("cto", "train", 0, 0, 1)
    assert not {"truth", "facts"} & set(row)


@pytest.mark.usefixtures("small_shards")
def test_equal_requests_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        generate_folder(("cto", "team"), 25, tmp_path / name, difficulties=(1, 2))
    first = hash_folder(tmp_path / "a")
    assert first == hash_folder(tmp_path / "b")
    assert sorted(first) == [
        "README.md",
        *(f"cto/train-0000{number}.parquet" for number in range(3)),
        "dataset.json",
        *(f"team/train-0000{number}.parquet" for number in range(3)),
    ]
    assert len(read_rows(tmp_path / "a" / "cto" / "train-00002.parquet")) == 5
    assert len(read_rows(tmp_path / "a" / "team" / "train-00002.parquet")) == 25
    assert validate_folder(tmp_path / "a").num_clean == 25 + 125


def test_workers_and_hash_seeds_do_not_change_a_byte(tmp_path: Path) -> None:
    arguments = ["generate", "--family", "cto", "--family", "risk", "--count", "60"]
    for name, processes, hash_seed in (("a", "1", "1"), ("b", "2", "2")):
        subprocess.run(
            [
                sys.executable,
                "-m",
                "emads.cli",
                *arguments,
                "--out",
                tmp_path / name,
                "--processes",
                processes,
            ],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            timeout=120,
        )
    assert hash_folder(tmp_path / "a") == hash_folder(tmp_path / "b")


@pytest.mark.usefixtures("small_shards")
def test_finished_shards_are_kept_and_damaged_ones_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate_folder(("cto",), 30, tmp_path)
    before = hash_folder(tmp_path)
    damaged = tmp_path / "cto" / "train-00001.parquet"
    damaged.write_bytes(damaged.read_bytes()[:100])
    written: list[str] = []
    original = datasets.write_shard

    def watch(out: Path, task: datasets.ShardTask) -> Shard:
        written.append(task.path)
        return original(out, task)

    monkeypatch.setattr(datasets, "write_shard", watch)
    generate_folder(("cto",), 30, tmp_path)
    assert written == ["cto/train-00001.parquet"]
    assert hash_folder(tmp_path) == before


@pytest.mark.usefixtures("small_shards")
def test_a_folder_grows_but_never_mixes(tmp_path: Path) -> None:
    generate_folder(("cto",), 15, tmp_path)
    generate_folder(("cto",), 25, tmp_path)
    generate_folder(("cto",), 10, tmp_path, split="test", seed=3)
    assert validate_folder(tmp_path).num_clean == 35
    with pytest.raises(UserError, match="seed 0 and difficulties"):
        generate_folder(("cto",), 25, tmp_path, seed=1)
    with pytest.raises(UserError, match="already holds more cto/train"):
        generate_folder(("cto",), 5, tmp_path)
    assert validate_folder(tmp_path).num_clean == 35


def test_kill_nine_while_generating_then_resume_gives_equal_bytes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "emads.cli", "generate", "--family", "cto", "--count", "2100", "--out"]
    subprocess.run([*command, tmp_path / "whole"], cwd=ROOT, check=True, capture_output=True, timeout=120)
    with subprocess.Popen([*command, tmp_path / "killed"], cwd=ROOT, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and not (tmp_path / "killed" / "cto" / "train-00000.parquet").exists():
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    subprocess.run([*command, tmp_path / "killed"], cwd=ROOT, check=True, capture_output=True, timeout=120)
    leftovers = list((tmp_path / "killed").rglob(".tmp-*"))  # what the kill cut short
    assert len(leftovers) <= 1
    for path in leftovers:
        path.unlink()
    assert hash_folder(tmp_path / "killed") == hash_folder(tmp_path / "whole")


@pytest.mark.usefixtures("small_shards")
def test_a_full_disk_is_one_line_and_keeps_finished_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate_folder(("cto",), 10, tmp_path)
    before = hash_folder(tmp_path)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(UserError, match="No space left on device"):
            generate_folder(("cto",), 20, tmp_path)
    assert hash_folder(tmp_path) == before


def test_the_folder_opens_with_plain_load_dataset(tmp_path: Path) -> None:
    from datasets import load_dataset

    generate_folder(("cto", "team"), 6, tmp_path / "data")
    loaded = load_dataset(str(tmp_path / "data"), "team", split="train", cache_dir=str(tmp_path / "cache"))
    assert loaded.num_rows == 30
    assert loaded[0]["key"] == "team/train/0/0/1"


def change_json(column: str, change: Callable[[Any], object]) -> Callable[[dict[str, Any]], None]:
    def apply(row: dict[str, Any]) -> None:
        value = json.loads(row[column])
        change(value)
        row[column] = json.dumps(value)

    return apply


CORRUPTIONS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "no key": (lambda row: row.update(key=None), "key is missing"),
    "unknown family": (lambda row: row.update(family="ctoo"), "unknown family 'ctoo'"),
    "unknown split": (lambda row: row.update(split="tset"), "unknown split 'tset'"),
    "negative index": (lambda row: row.update(index=-1), "must be >= 0"),
    "difficulty 11": (lambda row: row.update(difficulty=11), "difficulty must be 1 to 10"),
    "other index": (lambda row: row.update(index=row["index"] + 100), "contradicts the coordinates"),
    "other role": (lambda row: row.update(role="cost"), "has no role 'cost'"),
    "brief of another case": (lambda row: row.update(brief=row["brief"] + " "), "brief differs"),
    "cut messages": (lambda row: row.update(messages=row["messages"][:-7]), "messages differs"),
    "false observation": (
        change_json("messages", lambda chat: chat[3].update(content="latency 10 availability 99 cost 10")),
        "messages differs",
    ),
    "tool that does not exist": (
        change_json("messages", lambda chat: chat[2]["tool_calls"][0]["function"].update(name="guess")),
        "messages differs",
    ),
    "no tools": (lambda row: row.update(tools="[]"), "tools differs"),
    "wrong answer": (
        change_json("answer", lambda answer: answer.update(cost=answer["cost"] + 1)),
        "answer differs",
    ),
    "NaN answer": (lambda row: row.update(answer='{"cost": NaN}'), "answer differs"),
}


@pytest.mark.parametrize("kind", CORRUPTIONS)
@pytest.mark.usefixtures("small_shards")
def test_a_corrupt_row_is_named_and_the_clean_rows_are_kept(tmp_path: Path, kind: str) -> None:
    generate_folder(("cto",), 20, tmp_path)
    spoil, reason = CORRUPTIONS[kind]
    rewrite(tmp_path / "cto" / "train-00001.parquet", lambda rows: spoil(rows[4]))
    report = validate_folder(tmp_path)
    assert (report.num_rows, report.num_clean) == (20, 19)
    (problem,) = report.problems
    assert (problem.file, problem.row) == ("cto/train-00001.parquet", 4)
    assert reason in problem.reason


@pytest.mark.usefixtures("small_shards")
def test_repeated_and_lost_rows_are_named(tmp_path: Path) -> None:
    generate_folder(("cto",), 10, tmp_path)
    rewrite(tmp_path / "cto" / "train-00000.parquet", lambda rows: rows.append(dict(rows[2])))
    report = validate_folder(tmp_path)
    assert [str(problem) for problem in report.problems] == [
        "cto/train-00000.parquet: has 11 rows, dataset.json says 10",
        "cto/train-00000.parquet row 10: repeats cto/train-00000.parquet row 2",
    ]
    assert (report.num_rows, report.num_clean) == (11, 10)


@pytest.mark.usefixtures("small_shards")
def test_text_that_is_not_utf8_is_a_corrupt_row(tmp_path: Path) -> None:
    generate_folder(("cto",), 10, tmp_path)
    path = tmp_path / "cto" / "train-00000.parquet"
    table = pq.read_table(path)
    briefs = [text.encode() for text in table["brief"].to_pylist()]
    briefs[6] = b"\xff" + briefs[6]
    column = pa.array(briefs, pa.binary()).cast(pa.string(), safe=False)
    pq.write_table(table.set_column(table.column_names.index("brief"), "brief", column), path)
    report = validate_folder(tmp_path)
    assert [(problem.row, problem.reason) for problem in report.problems] == [(6, "text is not UTF-8")]
    assert report.num_clean == 9


@pytest.mark.parametrize("keep", [0, 3, 0.5, -1])
@pytest.mark.usefixtures("small_shards")
def test_a_truncated_file_is_named_and_the_others_are_counted(tmp_path: Path, keep: float) -> None:
    generate_folder(("cto",), 20, tmp_path)
    path = tmp_path / "cto" / "train-00000.parquet"
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content)) if keep == 0.5 else int(keep)])
    report = validate_folder(tmp_path)
    assert report.num_clean == 10
    assert len(report.problems) == 1
    assert str(report.problems[0]).startswith("cto/train-00000.parquet: truncated or corrupt Parquet file")


@pytest.mark.usefixtures("small_shards")
def test_flipped_bits_never_pass_as_other_data(tmp_path: Path) -> None:
    generate_folder(("cto",), 10, tmp_path)
    path = tmp_path / "cto" / "train-00000.parquet"
    whole = path.read_bytes()
    rows = read_rows(path)
    for position in range(0, len(whole) * 8, len(whole) * 8 // 60):
        content = bytearray(whole)
        content[position // 8] ^= 1 << position % 8
        path.write_bytes(content)
        if not validate_folder(tmp_path).problems:  # a bit of metadata that changes no row
            assert read_rows(path) == rows


@pytest.mark.usefixtures("small_shards")
def test_missing_and_foreign_files_are_named(tmp_path: Path) -> None:
    generate_folder(("cto",), 20, tmp_path)
    (tmp_path / "cto" / "train-00001.parquet").unlink()
    pq.write_table(pa.table({"x": [1]}), tmp_path / "cto" / "extra.parquet")
    problems = [str(problem) for problem in validate_folder(tmp_path).problems]
    assert problems[0] == "cto/train-00001.parquet: file is missing"
    assert problems[1].startswith("cto/extra.parquet: columns are not key, family")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"families": ("ctoo",)}, "did you mean 'cto'"),
        ({"families": ("cto", "cto")}, "named twice"),
        ({"count": 0}, "count 0 must be 1 or more"),
        ({"count": -5}, "count -5 must be 1 or more"),
        ({"seed": -1}, "seed -1"),
        ({"difficulties": (0,)}, "difficulty 0 must be 1 to 10"),
        ({"difficulties": ()}, "one or more"),
        ({"split": "tets"}, "did you mean 'test'"),
        ({"processes": 0}, "processes 0"),
        ({"out": Path("/dev/full/data")}, "cannot write data folder /dev/full/data"),
    ],
)
def test_bad_requests_are_refused_before_anything_is_written(
    tmp_path: Path, arguments: dict[str, Any], reason: str
) -> None:
    request: dict[str, Any] = {"families": ("cto",), "count": 5, "out": tmp_path / "data"} | arguments
    with pytest.raises(UserError, match=reason):
        generate_folder(**request)
    assert list(tmp_path.iterdir()) == []


def test_no_family_means_all_in_registry_order() -> None:
    assert check_families(()) == (*FAMILIES, "team")
    assert check_families(("team", "coo")) == ("coo", "team")


def test_validating_nothing_is_a_user_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no data in"):
        validate_folder(tmp_path)

"""`emads generate --teacher`, and what `emads` says of a teacher's folder afterwards."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from teacher_server import OFTEN, Body, Oracle, draw, serve
from teaching import Pupil, generate, give_wrong_answer, read_rows, teach

from emads.cli import main
from reliability.data.corrupt_rows import change_json
from roles.errors import UserError
from training.data.folders.rows import encode_shard
from training.data.folders.validation import validate_folder

pytestmark = pytest.mark.usefixtures("no_hang")
ROOT = Path(__file__).parents[4]


def test_the_verb_writes_a_folder_and_shows_counts_but_no_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-secret-123")
    arguments = [
        "generate",
        "--family",
        "cto",
        "--count",
        "4",
        "--difficulties",
        "1",
        "--out",
        str(tmp_path / "d"),
    ]
    arguments += ["--model", "tiny", "--teacher-set", "api_key_env=MY_KEY", "--teacher-set", "price_in=2.0"]
    arguments += ["--teacher-set", "price_out=10.0"]
    with serve(Pupil(draw("cto", 4), give_wrong_answer)) as server:
        status = main([*arguments, "--teacher-set", "max_cost=1.0", "--teacher", server.url])
        assert set(server.authorizations) == {"Bearer sk-secret-123"}
        num = len(server.bodies)
    captured = capsys.readouterr()
    assert status == 0
    assert captured.out.splitlines() == [
        "cto/train-00000.parquet: 2 of 4 plays kept; rejected answer 2",
        f"cost {num * 300e-6:.4f} ({num * 100} prompt and {num * 10} completion tokens)",
    ]
    files = [path for path in (tmp_path / "d").rglob("*") if path.is_file()]
    assert {path.name for path in files} == {
        "README.md",
        "teacher.json",
        "train-00000.parquet",
        "train-00000.rejected.jsonl",
        "train-00000.journal.jsonl",
    }
    assert not any(b"sk-secret" in path.read_bytes() for path in files)
    assert "sk-secret" not in captured.out + captured.err


def test_the_verb_ends_with_a_mistake_where_the_endpoint_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["generate", "--family", "cto", "--count", "3", "--out", str(tmp_path), "--model", "tiny"]
    with serve(Oracle(draw("cto", 3))) as server:
        server.faults = ["401"] * OFTEN
        assert main([*arguments, "--difficulties", "1", "--teacher", server.url]) == 2
    assert "answers 401 Incorrect API key" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("--model tiny", "--model goes with --teacher URL"),
        ("--teacher-set max_cost=3", "--teacher-set goes with --teacher URL"),
        ("--teacher-set concurrency=3", "--teacher-set goes with --teacher URL"),
        ("--teacher http://h/v1", "--teacher needs --model"),
        ("--teacher localhost:8000 --model m", "'localhost:8000' is not of the form"),
        ("--teacher http://h/v1 --model m --teacher-set max_cost=3.0", "max_cost 3 needs prices"),
        (
            "--teacher http://h/v1 --model m --teacher-set price_in=-1.0",
            "price_in -1.0: input should be greater",
        ),
        (
            "--teacher http://h/v1 --model m --teacher-set price_in=.nan",
            "price_in nan: input should be a finite number",
        ),
        (
            "--teacher http://h/v1 --model m --teacher-set api_key_env=NO_SUCH_KEY",
            "'NO_SUCH_KEY' holds no API key",
        ),
        ("--teacher http://h/v1 --model m --teacher-set concurency=3", "did you mean 'concurrency'"),
        ("--teacher http://h/v1 --model m --teacher-set api_key=3", "unknown teacher setting 'api_key'"),
        (
            "--teacher http://h/v1 --model m --teacher-set concurrency=0",
            "concurrency 0: input should be greater",
        ),
        ("--teacher http://h/v1 --model m --teacher-set concurrency=x", "concurrency 'x': input should be"),
        ("--teacher http://h/v1 --model m --teacher-set timeout_s", "not of the form key=value"),
        ("--teacher http://h/v1 --model m --teacher-set min_reward=2", "min_reward 2: input should be less"),
        ("--teacher http://h/v1 --model m --teacher-set tool_shape=xml", "tool_shape 'xml': input should be"),
        ("--teacher http://h/v1 --model m --processes 2", "--processes 2 does not go with --teacher"),
        ("--teacher http://h/v1 --model m --count 0", "count 0 must be 1 or more"),
    ],
)
def test_mistakes_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: str, reason: str
) -> None:
    assert main(["generate", "--out", str(tmp_path / "d"), *arguments.split()]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert reason in lines[0]
    assert not (tmp_path / "d").exists()


def test_settings_are_read_with_their_types(tmp_path: Path) -> None:
    from training.data.teacher.teacher import resolve_teacher

    overrides = ["timeout_s=30", "temperature=0", "tool_shape=text", "requests_per_minute=90", "max_turns=5"]
    endpoint, rules = resolve_teacher("http://h/v1", "m", ["price_in=2.0", *overrides])
    assert (endpoint.timeout_s, endpoint.temperature, endpoint.requests_per_minute) == (30.0, 0.0, 90.0)
    assert (endpoint.price_in, endpoint.max_cost) == (2.0, None)
    assert (rules.tool_shape, rules.max_turns) == ("text", 5)


@pytest.mark.process
def test_no_other_process_may_write_there(tmp_path: Path) -> None:
    with serve(Oracle(draw("cto", 3))) as server:
        server.hold_after = 0
        with subprocess.Popen(generate(server, tmp_path, 3), cwd=ROOT, stderr=subprocess.DEVNULL) as process:
            while process.poll() is None and not server.bodies:
                time.sleep(0.01)
            with pytest.raises(UserError, match="another process is writing"):
                teach(tmp_path, server, 3)
            os.kill(process.pid, signal.SIGKILL)


def state_a_lie(chat: list[Body]) -> None:
    chat[4]["content"] = "latency 1"


CORRUPTIONS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "other brief": (lambda row: row.update(brief="x"), "brief differs"),
    "other author": (lambda row: row.update(author="oracle"), "messages differs"),
    "unknown author": (lambda row: row.update(author="me"), "messages differs"),
    "cut messages": (lambda row: row.update(messages=row["messages"][:1]), "not mandate, brief and turns"),
    "other mandate": (
        change_json("messages", lambda chat: chat[0].update(content="x")),
        "not mandate, brief and turns",
    ),
    "no last turn": (change_json("messages", lambda chat: chat.pop()), "check of answer: no final answer"),
    "false observation": (
        change_json("messages", lambda chat: chat[3].update(content=f"latency 1 {chat[3]['content']}")),
        "check of replay",
    ),
    "unknown tool": (
        change_json(
            "messages",
            lambda chat: (
                chat[2]["tool_calls"][0]["function"].update(name="guess"),
                chat[3].update(name="guess"),
            ),
        ),
        "check of tools",
    ),
    "lie": (change_json("messages", state_a_lie), "check of chain: turn 2 states latency 1"),
    "wrong last turn": (
        change_json("messages", lambda chat: chat[-1].update(content="{}")),
        "check of answer: reward 0.000",
    ),
    "other answer": (
        change_json("answer", lambda answer: answer.update(cost=1)),
        "answer differs from that of",
    ),
}


@pytest.mark.parametrize("kind", CORRUPTIONS)
def test_validation_checks_a_teachers_rows_again(taught: Path, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(taught, folder)
    spoil, reason = CORRUPTIONS[kind]
    path = folder / "cto/train-00000.parquet"
    rows = read_rows(path)
    for row in rows:  # another text than the oracle's, as honest
        change_json("messages", lambda chat: chat[2].update(content="I look at A first."))(row)
    path.write_bytes(encode_shard(rows))
    assert validate_folder(folder).problems == ()
    spoil(rows[1])
    path.write_bytes(encode_shard(rows))
    (problem,) = validate_folder(folder).problems
    assert (problem.file, problem.row) == ("cto/train-00000.parquet", 1)
    assert reason in problem.reason


def test_validation_names_lost_rows_and_files(taught: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(taught, folder)
    path = folder / "cto/train-00000.parquet"
    path.write_bytes(encode_shard(read_rows(path)[:2]))
    assert [problem.reason for problem in validate_folder(folder).problems] == [
        "has 2 rows, teacher.json says 3"
    ]
    path.unlink()
    assert [problem.reason for problem in validate_folder(folder).problems] == ["file is missing"]


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("taught")
    with serve(Oracle(draw("cto", 3))) as server:
        teach(folder, server, 3)
    return folder

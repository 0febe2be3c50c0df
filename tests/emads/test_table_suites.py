"""`emads evaluate --suite` at the whole table: scripts, a model behind an endpoint, a run, mistakes."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from scored_outcomes import TINY
from teacher_server import TeacherServer, say, serve
from tiny_models import make_tiny_base

from emads.cli import main
from training.config.loading import load_config
from training.runs.run_folder import Run

Body = dict[str, Any]


def write_tasks(path: Path, count: int = 3) -> Path:
    """Tasks whose right answer only the hidden facts name."""
    tasks = [
        {
            "id": number,
            "name": "hall",
            "description": f"Task {number}: choose a hall.",
            "shared_information": ["North is cheap."],
            "hidden_information": [
                f"{fact} CLUE={['North', 'Pier'][place == 2]}" for place, fact in enumerate("abcd")
            ],
            "possible_answers": ["North", "Pier"],
            "correct_answer": "Pier",
        }
        for number in range(count)
    ]
    path.write_text(json.dumps(tasks, indent=1))
    return path


def follow_clues(body: Body) -> Body:
    """A model that prefers Pier once it has read the clue, and says whatever it has read."""
    read = "\n".join(message["content"] for message in body["messages"][1:])
    answer = "Pier" if "CLUE=Pier" in read else "North"
    if body["messages"][-1]["content"].endswith("Vote."):
        return say(json.dumps({"vote": "accept", "answer": answer}))
    if "Draft the answer." in read or "Nobody else is asked." in read:
        return say(json.dumps({"answer": answer, "reason": f"CLUE={answer}"}))
    return say(json.dumps({"answer": answer, "say": f"CLUE={answer}"}))


def read_table(text: str) -> dict[str, float]:
    """Means by figure."""
    rows = re.findall(r"^ ?(\S.*?) {2,}\d+ +(-?\d\.\d{3}) \[", text, re.M)
    return {name: float(mean) for name, mean in rows}


def test_a_model_plays_hidden_profiles_and_goes_on_at_no_cost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_tasks(tmp_path / "benchmark.json")
    arguments = [
        "evaluate",
        "--suite",
        "hidden-profile",
        "--tasks",
        str(path),
        "--out",
        str(tmp_path / "out"),
    ]
    with serve(follow_clues) as server:
        arguments += ["--seat", f"all=openai:tiny@{server.url}"]
        assert main(arguments) == 0
        asked = len(server.bodies)
        printed = capsys.readouterr().out
        assert main(arguments) == 0
        assert len(server.bodies) == asked == 3 * (4 + 1 + 4 + 1)  # statements, draft, votes, single agent
    means = read_table(printed)
    assert means["before the talk: majority"] == 0
    assert means["members right before"] == 0.25
    assert means["after it: majority (solved)"] == means["one agent, all facts"] == 1
    assert means["after it: majority (solved) - before the talk: majority"] == 1
    assert means["after it: majority (solved) - one agent, all facts"] == 0
    assert printed.splitlines()[1:] == capsys.readouterr().out.splitlines()[1:]
    rows = [json.loads(line) for line in (tmp_path / "out/outcomes.jsonl").read_text().splitlines()]
    assert rows[0]["said"]["risk report"] == '{"answer": "Pier", "say": "CLUE=Pier"}'


def test_a_failing_endpoint_is_never_scored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_tasks(tmp_path / "benchmark.json")
    out = tmp_path / "out"

    def play(server: TeacherServer) -> int:
        seat = ["--seat", f"all=openai:tiny@{server.url}", "--api", "max_retries=0", "--api", "concurrency=1"]
        return main(["evaluate", "--suite", "hidden-profile", "--tasks", str(path), "--out", str(out), *seat])

    with serve(follow_clues) as server:
        server.faults = [None, "500"]
        assert play(server) == 8
        assert "run the same command again" in capsys.readouterr().err
        assert play(server) == 0
    assert read_table(capsys.readouterr().out)["after it: majority (solved)"] == 1


@pytest.mark.parametrize(("player", "regret"), [("scripted", 0.0), ("scripted:random", 1.0)])
def test_scripts_negotiate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], player: str, regret: float
) -> None:
    out = ["--out", str(tmp_path / "out")]
    arguments = ["evaluate", "--suite", "negotiation", "--count", "10", "--seat", f"all={player}", *out]
    assert main(arguments) == 0
    means = read_table(capsys.readouterr().out)
    assert means["regret"] == pytest.approx(regret, abs=0.2)
    assert means["answers read"] == 1


def test_a_run_negotiates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A tiny base writes nothing legal: no deal, full regret."""
    run = Run.create(tmp_path / "run", load_config(None, TINY))
    make_tiny_base(run.path)
    out = ["--out", str(tmp_path / "out"), "--stage", "base", "--count", "2"]
    assert main(["evaluate", str(run.path), "--suite", "negotiation", *out]) == 0
    means = read_table(capsys.readouterr().out)
    assert (means["agreements"], means["regret"], means["answers read"]) == (0, 1, 0)


def test_mistakes_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_tasks(tmp_path / "tasks.json")
    suite = ["evaluate", "--suite", "hidden-profile", "--seat", "all=scripted:random"]
    path.write_text(path.read_text().replace('"correct_answer": "Pier"', '"correct_answer": "Moon"', 1))
    for arguments, message in (
        ([*suite, "--tasks", str(path)], "tasks.json row 1: task: Value error, correct_answer is none of"),
        (suite, "needs --tasks"),
        ([*suite, "--tasks", str(tmp_path / "no.json")], "no.json: No such file or directory"),
        (["evaluate", "--seat", "all=scripted", "--tasks", "x"], "--tasks does not go with"),
        (["evaluate", "--suite", "negotiation", "--seat", "all=scripted:blind"], "scripted:greedy"),
        (["evaluate", "--suite", "negotiations"], "did you mean 'negotiation'"),
    ):
        assert main(arguments) == 2, arguments
        assert message in capsys.readouterr().err

"""`emads judge` against a real server of the protocol: a fit judge scores answers, an unfit one none."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import fail
from teacher_server import OFTEN, say, serve

from emads.cli import main
from emads.commands import judge
from scenarios.tasks.maths_reward import count_equations

QUICK = ["--api", "timeout_s=10", "--api", "backoff_s=0.01", "--api", "max_retries=1"]


def check_sums(answer: str) -> float:
    right, written = count_equations(answer)
    return float(right == written)


def make_model(score: Callable[[str], float]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A model that reads the form out of the prompt and fills it in."""

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        lines = body["messages"][0]["content"].splitlines()
        data = json.loads(next(line for line in lines if line.startswith('{"question"')))
        form = json.loads(lines[-1].partition(": ")[2])
        return say(json.dumps(dict.fromkeys(form, score(data["answer"]))))

    return answer


def write_answers(folder: Path) -> Path:
    folder.mkdir()
    rows = [{"question": "6 * 7?", "answer": f"6 * 7 = {result}"} for result in (42, 45, 42, 42)]
    (folder / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture(autouse=True)
def few_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "NUM_CASES", 10)


def test_a_fit_judge_scores_the_answers_of_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers, out = write_answers(tmp_path / "answers"), tmp_path / "new" / "scores.jsonl"
    asked = ["--answers", str(answers), "--out", str(out), "--criterion", "right=is every sum right?"]
    with serve(make_model(check_sums)) as server:
        assert main(["judge", f"openai:tiny@{server.url}", *asked, *QUICK]) == 0
    printed = capsys.readouterr().out
    assert "better answer first     1.00" in printed
    assert "right: 0.750 [" in printed
    assert [json.loads(line)["right"] for line in out.read_text().splitlines()] == [1, 0, 1, 1]


def test_an_unfit_judge_is_refused_before_it_scores(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers, out = write_answers(tmp_path / "answers"), tmp_path / "scores.jsonl"
    with serve(make_model(lambda answer: 1.0)) as server:
        message = fail(
            capsys,
            "judge",
            f"openai:tiny@{server.url}",
            "--answers",
            str(answers),
            "--out",
            str(out),
            *QUICK,
        )
        assert not any("6 * 7?" in body["messages"][0]["content"] for body in server.bodies)
    assert "not fit to score: it puts the better answer first in 0.50" in message
    assert not out.exists()


def test_a_judge_that_is_down_and_a_spent_budget_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with serve(make_model(check_sums)) as server:
        model = f"openai:tiny@{server.url}"
        prices = ["--api", "price.tiny=1000,1000", "--api", "max_cost=0.001"]
        assert "nothing was scored" in fail(capsys, "judge", model, *prices, *QUICK)
        server.faults = ["500"] * OFTEN
        assert "nothing was scored" in fail(capsys, "judge", model, *QUICK)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["scripted"], "write openai:MODEL@URL"),
        (["openai:m@http://127.0.0.1:9/v1", "--out", "x"], "--out goes with --answers FOLDER"),
        (
            ["openai:m@http://127.0.0.1:9/v1", "--answers", "x", "--criterion", "clear"],
            "--criterion 'clear' is not of the form NAME=QUESTION",
        ),
        (["openai:m@http://127.0.0.1:9/v1", "--api", "max_cost=1"], "max_cost=1 needs the price of 'm'"),
    ],
)
def test_mistakes_name_the_remedy(
    arguments: list[str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert part in fail(capsys, "judge", *arguments)

"""`emads simulate` on a real, untrained team: written cases, test cases, and all that it can write."""

import json
import re
from pathlib import Path

import pytest
from command_line import fail
from episode_rows import read_episodes
from tiny_models import make_untrained_run

from emads.cli import main
from scenarios.written.written_case import read_case

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_untrained_run(tmp_path_factory.mktemp("simulation") / "run")


def simulate(run: Path, *arguments: object) -> int:
    return main(["simulate", str(run), "--stage", "base", *map(str, arguments)])


def test_written_cases_play_and_everything_is_kept(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = simulate(
        run,
        *EXAMPLES,
        *("--html", tmp_path / "minutes", "--atif", tmp_path / "atif", "--jsonl", tmp_path / "e.jsonl"),
    )
    out = capsys.readouterr().out
    assert status == 0
    episodes = read_episodes(tmp_path / "e.jsonl")
    assert len(episodes) == len(EXAMPLES)
    assert out.count("Not scored: nobody knows the right answer") == len(EXAMPLES)
    assert "team reward R" not in out
    names = [episode.scenario_key.replace("/", "-") for episode in episodes]
    assert sorted(path.name for path in (tmp_path / "minutes").iterdir()) == sorted(
        [*(f"{n}.html" for n in names), "index.html"]
    )
    assert sorted(path.name for path in (tmp_path / "atif").iterdir()) == sorted(f"{n}.json" for n in names)
    for path in (tmp_path / "minutes").iterdir():
        assert f"Minutes of the base team of run {run.name}" in path.read_text()
        assert f"{'index:    ' if path.name == 'index.html' else 'minutes:  '}{path}" in out
    for episode, path in zip(episodes, EXAMPLES, strict=True):
        document = json.loads(
            (tmp_path / "atif" / f"{episode.scenario_key.replace('/', '-')}.json").read_text()
        )
        (cto,) = [one for one in document["subagent_trajectories"] if one["agent"]["name"] == "cto"]
        heard = cto["steps"][0]["message"]
        case = read_case(path)
        words = [case.notes["cto"]] if "cto" in case.notes else []
        budget, *lines = heard.split("\n")
        assert re.fullmatch(rf"Budget {case.public.budget} (tight|middle|ample)\.", budget)
        # a tiny team reads its seat's words and figures alone: no rules, no context
        assert lines[: len(words)] == words
        figures = r"( need| veto)?: (none|\w+ \d \w \d+ \d+(, \w+ \d \w \d+ \d+)*)"
        assert len(lines) == len(words) + len(case.options)
        for option, line in zip(case.options, lines[len(words) :], strict=True):
            assert re.fullmatch(option + figures, line)
        assert path.stem in episode.scenario_key


def test_live_shows_events_and_the_same_episodes(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate(run, "--count", 2, "--jsonl", tmp_path / "one.jsonl") == 0
    assert "CTO reads" in capsys.readouterr().out
    assert simulate(run, "--count", 2, "--jsonl", tmp_path / "two.jsonl", "--live") == 0
    out = capsys.readouterr().out
    assert "team/test/0/1/1  the meeting ends" in out
    assert out.count("team reward") == 2
    assert "CTO reads" not in out
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "two.jsonl").read_bytes()


def test_a_case_that_the_model_has_no_room_for_is_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "long.md"
    words = "The permits wait in three rooms. " * 60
    options = "{A: {name: x, base: 5}, B: {name: y, base: 4}}"
    path.write_text(f"---\ntitle: x\nbudget: 9\noptions: {options}\n---\n## CTO\n{words}\n## COO\n{words}\n")
    line = fail(capsys, "simulate", run, path, "--stage", "base", "--html", tmp_path / "minutes")
    assert f"{path}: what cto reads is" in line
    assert "shorten the case" in line
    assert list(tmp_path.iterdir()) == [path]

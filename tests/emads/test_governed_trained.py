"""A trained team over the human gate, end to end: two episodes, all outputs, killed and taken up again."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from episode_rows import read_governed
from shared_folders import make_once
from trained_team import train_small_team

from emads.cli import main

ROOT = Path(__file__).parent.parent.parent
COUNT = 2


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_once(tmp_path_factory, "trained", lambda folder: train_small_team(folder / "run")) / "run"


def call(run: Path, store: Path) -> list[str]:
    team = [str(run), "--stage", "marl"]
    return ["simulate", "--protocol", "full", *team, "--count", str(COUNT), "--db", str(store)]


def count_entries(store: Path, kind: str = "%") -> int:
    """Entries of a store that another process may be writing; 0 where there is none yet."""
    try:
        with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection:
            query = "SELECT count(*) FROM decision_log WHERE kind LIKE ?"
            return int(connection.execute(query, [kind]).fetchone()[0])
    except sqlite3.OperationalError:
        return 0


@pytest.mark.slow
def test_two_episodes_are_ruled_on_and_written(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = [
        *("--html", str(tmp_path / "minutes"), "--jsonl", str(tmp_path / "e.jsonl")),
        *("--atif", str(tmp_path / "atif"), "--live"),
    ]
    assert main([*call(run, tmp_path / "s.db"), *outputs]) == 0
    out = capsys.readouterr().out
    records = read_governed(tmp_path / "e.jsonl")
    assert len(records) == COUNT
    for record in records:
        assert record.status in ("completed", "completed_with_alerts", "handed_over", "not_approved")
        assert f"{record.episode.scenario_key}  {record.status}" in out
        answers = [answer for chapter in record.chapters for answer in chapter.answers]
        assert {answer.reviewer for answer in answers} == {"simulated"}
        versions = {t.policy_version for p in record.episode.trajectories.values() for t in p.turns}
        assert versions == {f"{role}@marl" for role in record.episode.trajectories}
        assert all(t.logprobs for p in record.episode.trajectories.values() for t in p.turns)
        assert record.is_log_sound
        assert record.log[-1].kind == "closed"
    for folder, ending in (("minutes", "html"), ("atif", "json")):
        names = {path.name for path in (tmp_path / folder).iterdir()}
        wanted = {f"{r.episode.scenario_key.replace('/', '-')}.{ending}" for r in records}
        assert names == wanted | ({"index.html"} if ending == "html" else set())
    for page in (tmp_path / "minutes").iterdir():
        assert f"Minutes of the marl team of run {run.name}" in page.read_text()


@pytest.mark.process
def test_a_killed_simulation_goes_on_where_it_stopped(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(call(run, tmp_path / "whole.db")) == 0
    whole = capsys.readouterr().out
    store = tmp_path / "killed.db"
    process = subprocess.Popen(
        [sys.executable, "-m", "emads.cli", *call(run, store)], cwd=ROOT, stdout=subprocess.DEVNULL
    )
    num_whole = count_entries(tmp_path / "whole.db")
    while count_entries(store) < num_whole // 3:
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait(20) == -signal.SIGKILL
    assert num_whole // 3 <= count_entries(store) < num_whole
    assert main(call(run, store)) == 0
    assert capsys.readouterr().out == whole
    effects = [count_entries(one, "executed") for one in (store, tmp_path / "whole.db")]
    assert effects[0] == effects[1] > 0
    for one in (store, tmp_path / "whole.db"):
        with closing(sqlite3.connect(one)) as connection:
            rows = connection.execute(
                "SELECT thread, json_extract(body, '$.attempt'), count(*) FROM decision_log"
                " WHERE kind = 'committed' GROUP BY 1, 2"
            ).fetchall()
            assert all(number == 1 for *_, number in rows)


@pytest.mark.slow
def test_a_written_case_plays_with_the_trained_team(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = ROOT / "examples" / "card-payments.yaml"
    team = [str(run), "--stage", "marl", "--html", str(tmp_path)]
    assert main(["simulate", str(case), "--protocol", "full", *team, "--world", "8"]) == 0
    assert "  First plan" in capsys.readouterr().out
    (page,) = tmp_path.iterdir()
    text = page.read_text()
    assert "What replaces our card payment switch before its support ends?" in text
    assert "Not scored: nobody knows the right answer" in text

"""Folders of demonstrations by a teacher: nothing is asked twice, nothing is lost or mixed."""

import json
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from teacher_server import NAMED, OFTEN, Oracle, draw, expect_row, serve
from teaching import Pupil, generate, play_all, read_rows, reasons, teach

from roles.errors import UserError
from scenarios.base import Step
from scenarios.registry import FAMILIES
from training.data.folders import datasets
from training.data.folders.index import TeacherIndex
from training.data.teacher.teacher import TeachingRules

pytestmark = pytest.mark.usefixtures("no_hang")
ROOT = Path(__file__).parents[4]


@pytest.mark.usefixtures("small_shards")
def test_a_folder_opens_with_plain_load_dataset_and_is_the_oracles_but_for_the_author(tmp_path: Path) -> None:
    from datasets import load_dataset

    families = ("cto", "risk")
    with serve(Oracle([scenario for family in families for scenario in draw(family, 8)])) as server:
        report = teach(tmp_path / "taught", server, 7, families=families)
    datasets.generate_folder(families, 7, tmp_path / "oracle", difficulties=(1,))
    assert [(shard.path, shard.num_rows) for shard in report.shards] == [
        ("cto/train-00000.parquet", 5),
        ("cto/train-00001.parquet", 2),
        ("risk/train-00000.parquet", 5),
        ("risk/train-00001.parquet", 2),
    ]
    for shard in report.shards:
        family = FAMILIES[shard.family]
        indices = [row["index"] for row in read_rows(tmp_path / "oracle" / shard.path)]
        assert read_rows(tmp_path / "taught" / shard.path) == [
            expect_row(family.generate("train", 0, index, 1)) | {"author": "teacher:tiny"}
            for index in indices
        ]
    cache = str(tmp_path / "cache")
    loaded = load_dataset(str(tmp_path / "taught"), "risk", split="train", cache_dir=cache)
    assert loaded.num_rows == 7
    assert loaded[0]["author"] == "teacher:tiny"


def test_finished_scenarios_are_never_asked_again(tmp_path: Path) -> None:
    with serve(Oracle(draw("cto", 10))) as server:
        teach(tmp_path, server, 6)
        num_requests = len(server.bodies)
        before = read_rows(tmp_path / "cto/train-00000.parquet")
        teach(tmp_path, server, 6)
        assert len(server.bodies) == num_requests
        assert read_rows(tmp_path / "cto/train-00000.parquet") == before
        teach(tmp_path, server, 8)
        assert {server.model.find(body)[0].index for body in server.bodies[num_requests:]} == {6, 7}  # type: ignore[attr-defined]
        assert set(server.answered.values()) == {1}
        assert read_rows(tmp_path / "cto/train-00000.parquet")[:6] == before


def test_another_threshold_filters_what_is_there_without_asking(tmp_path: Path) -> None:
    def wrong_figure(steps: Sequence[Step]) -> list[Step]:
        text = steps[-1].text
        answer = json.loads(text[text.index("{") :])
        return [*steps[:-1], Step(text=json.dumps(answer | {"worth": 777}))]

    with serve(Pupil(draw("coo", 4), lambda steps: steps)) as server:
        teach(tmp_path / "coo", server, 4, families=("coo",))
    scenarios = draw("cto", 4)
    with serve(Pupil(scenarios, wrong_figure)) as server:
        outcomes = play_all(server, scenarios, rules=TeachingRules(min_reward=0.9))
        assert reasons(outcomes) == [None, "chain", None, "chain"]
        assert reasons(play_all(server, scenarios)) == [None, "answer", None, "answer"]


@pytest.mark.process
@pytest.mark.parametrize("hold_after", [2, 23])
def test_kill_nine_then_rerun_asks_nothing_twice_and_gives_the_same_rows(
    tmp_path: Path, hold_after: int
) -> None:
    scenarios = draw("cto", 12)
    with serve(Oracle(scenarios)) as server:
        teach(tmp_path / "whole", server, 12)
        num_requests = len(server.bodies)
        server.bodies.clear()
        server.answered.clear()
        server.hold_after = hold_after
        killed = tmp_path / "killed"
        journal = killed / "cto" / "train-00000.journal.jsonl"
        with subprocess.Popen(generate(server, killed), cwd=ROOT, stderr=subprocess.DEVNULL) as process:
            while process.poll() is None and not is_journaled(journal, hold_after):
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
        assert sum(server.answered.values()) == hold_after
        with journal.open("ab") as file:
            file.write(b'{"kind":"reply","key":"cto/tr')  # what a kill in the middle of a write leaves
        server.hold_after = None
        subprocess.run(generate(server, killed), cwd=ROOT, check=True, capture_output=True, timeout=50)
        assert set(server.answered.values()) == {1}
        assert sum(server.answered.values()) == num_requests
    whole = (tmp_path / "whole" / "cto" / "train-00000.parquet").read_bytes()
    assert (killed / "cto" / "train-00000.parquet").read_bytes() == whole


def is_journaled(path: Path, num_replies: int) -> bool:
    return path.exists() and path.read_bytes().count(b"\n") == num_replies + 1


@pytest.mark.parametrize("place", [0, 5])
def test_faults_of_all_kinds_change_nothing(tmp_path: Path, place: int) -> None:
    faults = [fault for fault, kind in NAMED.items() if kind != "timeout"]
    with serve(Oracle(draw("cto", 8))) as server:
        teach(tmp_path / "whole", server, 8)
        server.answered.clear()
        server.faults += [None] * place
        for fault in faults:
            server.faults += [fault, None]
        report = teach(tmp_path / "faulty", server, 8, max_retries=20)
        assert report.problem is None
        assert server.faults == []
        assert set(server.answered.values()) == {1}
    name = "cto/train-00000.parquet"
    assert (tmp_path / "faulty" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_scenarios_without_a_reply_are_named_and_asked_again(tmp_path: Path) -> None:
    with serve(Oracle(draw("cto", 5))) as server:
        server.faults = [None, "400", None, "400"]
        report = teach(tmp_path, server, 5, concurrency=1)
        assert report.problem == "scenarios without a reply: refused 2; run the same command again to go on"
        assert report.num_failures == {"refused": 2}
        (shard,) = report.shards
        assert (shard.num_rows, shard.num_unfinished) == (3, 2)
        (shard,) = teach(tmp_path, server, 5, concurrency=1).shards
        assert (shard.num_rows, shard.num_unfinished) == (5, 0)
        assert set(server.answered.values()) == {1}


def test_an_endpoint_that_is_down_ends_the_work(tmp_path: Path) -> None:
    with serve(Oracle(draw("cto", 20))) as server:
        server.faults = ["500"] * OFTEN
        rules = TeachingRules(max_failures=3)
        report = teach(tmp_path, server, 20, rules=rules, concurrency=1, max_retries=1)
        assert report.problem is not None
        assert (
            "failed on 3 scenarios in a row, the last time with server_error: 500 internal" in report.problem
        )
        assert len(server.bodies) == 6
        assert not (tmp_path / "teacher.json").exists()
        server.faults = []
        assert teach(tmp_path, server, 20).shards[0].num_rows == 20


def test_a_wrong_model_name_can_be_set_right(tmp_path: Path) -> None:
    with serve(Oracle(draw("cto", 3))) as server:
        server.faults = ["404"] * OFTEN
        report = teach(tmp_path, server, 3, model="tyni")
        assert report.problem is not None
        assert "answers 404 no model tiny (x); check the URL and the model's name" in report.problem
        server.faults = []
        assert teach(tmp_path, server, 3).shards[0].num_rows == 3


def test_the_cost_limit_stops_cleanly_and_a_higher_one_goes_on(tmp_path: Path) -> None:
    prices: dict[str, Any] = {
        "price_in": 1000.0,
        "price_out": 1000.0,
        "max_completion_tokens": 20,
        "concurrency": 2,
    }
    with serve(Oracle(draw("cto", 8))) as server:
        report = teach(tmp_path, server, 8, max_cost=10.0, **prices)
        assert report.problem is None
        assert report.stop is not None
        assert report.stop.startswith("cost limit 10 reached")
        (shard,) = report.shards
        assert 0 < shard.num_unfinished < 8
        assert shard.num_rows + shard.num_unfinished == 8
        assert shard.cost == pytest.approx(0.11 * len(server.bodies))
        assert shard.cost <= 10
        (shard,) = teach(tmp_path, server, 8, max_cost=10.0, **prices).shards
        assert shard.cost <= 10
        assert shard.num_unfinished > 0
        (shard,) = teach(tmp_path, server, 8, max_cost=50.0, **prices).shards
        assert (shard.num_rows, shard.num_unfinished) == (8, 0)
        assert set(server.answered.values()) == {1}
        assert shard.cost == pytest.approx(0.11 * len(server.bodies))
        assert (shard.prompt_tokens, shard.completion_tokens) == (
            100 * len(server.bodies),
            10 * len(server.bodies),
        )


def test_folders_are_never_mixed(tmp_path: Path) -> None:
    with serve(Oracle(draw("cto", 6))) as server:
        teach(tmp_path / "taught", server, 4)
        with pytest.raises(UserError, match=r"holds replies of teacher:tiny, seed 0, difficulties 1; choose"):
            teach(tmp_path / "taught", server, 4, model="other")
        with pytest.raises(UserError, match="already holds more cto/train scenarios"):
            teach(tmp_path / "taught", server, 3)
        with pytest.raises(UserError, match="holds demonstrations of a teacher"):
            datasets.generate_folder(("cto",), 4, tmp_path / "taught", difficulties=(1,))
        datasets.generate_folder(("cto",), 4, tmp_path / "oracle", difficulties=(1,))
        with pytest.raises(UserError, match="holds demonstrations of the oracle"):
            teach(tmp_path / "oracle", server, 4)
    assert len(TeacherIndex.read(tmp_path / "taught").shards) == 1


@pytest.mark.parametrize(
    ("line", "spoilt", "reason"),
    [
        (1, b"{}", ":2: damaged line"),
        (0, b"{}", ":1: damaged line"),
        (0, b"", ":1: damaged line"),
        (1, b"\xff", ":2: damaged line"),
        (0, None, ":1: the heading must be the first line"),
    ],
)
def test_a_damaged_journal_is_named(tmp_path: Path, line: int, spoilt: bytes | None, reason: str) -> None:
    path = tmp_path / "cto" / "train-00000.journal.jsonl"
    with serve(Oracle(draw("cto", 3))) as server:
        teach(tmp_path, server, 3)
        lines = path.read_bytes().splitlines()
        lines[line : line + 1] = [] if spoilt is None else [spoilt]
        path.write_bytes(b"\n".join(lines) + b"\n")
        with pytest.raises(UserError, match=reason):
            teach(tmp_path, server, 3)


def test_a_reply_whose_line_was_deleted_is_asked_for_again(tmp_path: Path) -> None:
    path = tmp_path / "cto" / "train-00000.journal.jsonl"
    with serve(Oracle(draw("cto", 3))) as server:
        teach(tmp_path, server, 3)
        before = read_rows(tmp_path / "cto/train-00000.parquet")
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[:3] + lines[4:]))
        report = teach(tmp_path, server, 3)
        assert report.shards[0].num_rows == 3
        assert read_rows(tmp_path / "cto/train-00000.parquet") == before

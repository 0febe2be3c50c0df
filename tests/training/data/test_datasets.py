"""Data folders: verified rows of different scenarios, byte-identical, growing, and never mixed."""

import fcntl
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from data_folders import hash_folder, read_rows

from roles.errors import UserError
from roles.team import RECONCILER, SPECIALISTS, Report
from scenarios import team
from scenarios.base import Split, ToolCall
from scenarios.registry import FAMILIES
from training.data.folders import datasets
from training.data.folders import rows as row_maker
from training.data.folders.datasets import DrawnScenario, FamilyRequest, draw_block, generate_folder
from training.data.folders.index import DatasetIndex
from training.data.folders.rows import (
    Case,
    OracleDisagreementError,
    build_rows,
    check_families,
    generate_case,
    load_messages,
    load_tools,
)
from training.data.folders.validation import validate_folder


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "SCENARIOS_PER_SHARD", 10)
    monkeypatch.setattr(datasets, "SCENARIOS_PER_BLOCK", 4)


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_hold_a_true_transcript_whose_answer_is_gold(family: str) -> None:
    for index in range(5):
        (row,) = build_rows(family, "train", 0, index, 1)
        scenario = FAMILIES[family].generate("train", 0, index, 1)
        messages = load_messages(row["messages"])
        assert [message["role"] for message in messages[:2]] == ["system", "user"]
        assert messages[1]["content"] == row["brief"] == scenario.brief
        for call_turn, observation in zip(messages[2:-1:2], messages[3:-1:2], strict=True):
            function = call_turn["tool_calls"][0]["function"]
            call = ToolCall(name=function["name"], arguments=function["arguments"])
            assert FAMILIES[family].call_tool(scenario, call) == observation["content"]
        assert FAMILIES[family].verify(scenario, messages[-1]["content"]).exact
        assert FAMILIES[family].verify(scenario, row["answer"]).reward == pytest.approx(1.0)
        tools = [tool["function"]["name"] for tool in load_tools(row["tools"])]
        assert {m["tool_calls"][0]["function"]["name"] for m in messages if "tool_calls" in m} <= set(tools)


def test_a_team_case_gives_one_row_per_seat() -> None:
    rows = build_rows("team", "train", 0, 3, 1)
    assert [row["role"] for row in rows] == [*SPECIALISTS, RECONCILER]
    assert {row["key"] for row in rows} == {"team/train/0/3/1"}
    case = team.generate("train", 0, 3, 1)
    for row in rows[:4]:
        messages = load_messages(row["messages"])
        measured = [message for message in messages if message["role"] == "tool"]
        said = messages[1 + max(place for place, one in enumerate(messages) if one["role"] == "tool") :]
        assert [message["role"] for message in said] in (  # a report and a vote, with a reply where asked
            ["assistant", "user", "assistant"],
            ["assistant", "user", "assistant", "user", "assistant"],
        )
        report = Report.model_validate_json(row["answer"])
        written = said[0]["content"]
        assert json.loads(written[written.index("{") :]) == report.model_dump()
        assert report.offers
        for offer in report.offers:
            found = f"cost {offer.cost}, worth {offer.worth}; hard limit holds"
            assert any(found in message["content"] for message in measured)
        assert row["domain"] == case.sector
    decided = load_messages(rows[4]["messages"])
    assert [message["role"] for message in decided[-1:]] == ["assistant"]
    assert decided[2]["tool_calls"][0]["function"]["name"] == "sheet"
    assert json.loads(rows[4]["answer"])["option"] in ("A", "B", "none")


def test_a_sector_takes_its_own_cases_alone(tmp_path: Path) -> None:
    index = generate_folder(("cto", "reconcile"), 6, tmp_path, sector="bank", processes=1)
    assert {shard.sector for shard in index.shards} == {"bank"}
    for shard in index.shards:
        found = read_rows(tmp_path / shard.path)
        assert [row["domain"] for row in found] == ["bank"] * 6
        assert [row["index"] for row in found] == sorted(row["index"] for row in found)
        assert json.loads(json.dumps(found)) == [
            json.loads(json.dumps(build_rows(shard.family, "train", 0, row["index"], row["difficulty"])[0]))
            for row in found
        ]
    assert validate_folder(tmp_path).problems == ()
    grown = generate_folder(("cto",), 9, tmp_path, sector="bank", processes=1)
    assert {shard.num_scenarios for shard in grown.shards if shard.family == "cto"} == {9}
    with pytest.raises(UserError, match="sector bank; choose another --out"):
        generate_folder(("cto",), 9, tmp_path, processes=1)
    with pytest.raises(UserError, match="unknown sector 'banc'; did you mean 'bank'"):
        generate_folder(("cto",), 9, tmp_path / "other", sector="banc")
    with pytest.raises(UserError, match="lookup play in no sector"):
        generate_folder(("lookup",), 9, tmp_path / "other", sector="bank")


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


@pytest.mark.usefixtures("small_shards")
def test_sound_shards_are_kept_and_damaged_ones_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate_folder(("cto", "coo"), 30, tmp_path)
    before = hash_folder(tmp_path)
    damaged = tmp_path / "cto" / "train-00001.parquet"
    damaged.write_bytes(damaged.read_bytes()[:100])
    kept = tmp_path / "cto" / "train-00000.parquet"
    kept_since = kept.stat().st_mtime_ns
    drawn: list[str] = []

    def watch(request: FamilyRequest, indices: range) -> list[DrawnScenario]:
        drawn.append(request.family)
        return draw_block(request, indices)

    monkeypatch.setattr(datasets, "draw_block", watch)
    generate_folder(("cto", "coo"), 30, tmp_path)
    assert set(drawn) == {"cto"}
    assert kept.stat().st_mtime_ns == kept_since
    assert hash_folder(tmp_path) == before


@pytest.mark.usefixtures("small_shards")
def test_a_folder_grows_but_never_mixes(tmp_path: Path) -> None:
    generate_folder(("cto",), 15, tmp_path)
    generate_folder(("cto",), 25, tmp_path)
    generate_folder(("cto",), 10, tmp_path, split="test", seed=3, unseal=True)
    assert validate_folder(tmp_path).num_clean == 35
    with pytest.raises(UserError, match="seed 0, difficulties"):
        generate_folder(("cto",), 25, tmp_path, seed=1)
    with pytest.raises(UserError, match="already holds more cto/train"):
        generate_folder(("cto",), 5, tmp_path)
    assert validate_folder(tmp_path).num_clean == 35


@pytest.mark.usefixtures("small_shards")
def test_a_folder_never_mixes_versions_of_a_generator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate_folder(("cto",), 15, tmp_path)
    monkeypatch.setattr(datasets, "compute_generator_digest", lambda family, difficulties: "another")
    with pytest.raises(UserError, match="another version of its generator"):
        generate_folder(("cto",), 25, tmp_path)


def repeat_some(monkeypatch: pytest.MonkeyPatch, num_different: int, *, every: int = 3) -> None:
    """Let the cto generator say a case of index i + 1 - `every` again at index i, and cycle in the end."""

    def generate(family: str, split: Split, seed: int, index: int, difficulty: int) -> Case:
        source = index + 1 - every if index % every == every - 1 else index
        return generate_case(family, split, seed, source % num_different, difficulty)

    monkeypatch.setattr(datasets, "generate_case", generate)


@pytest.mark.usefixtures("small_shards")
def test_repeats_are_left_out_and_others_are_drawn_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repeat_some(monkeypatch, 1000)
    index = generate_folder(("cto",), 22, tmp_path / "whole", difficulties=(1,))
    keys = [row["index"] for shard in index.shards for row in read_rows(tmp_path / "whole" / shard.path)]
    assert keys == [i for i in range(33) if i % 3 != 2][:22]
    assert [(s.start, s.stop, s.num_scenarios, s.num_exact_repeats) for s in index.shards] == [
        (0, 14, 10, 4),
        (14, 29, 10, 5),
        (29, 32, 2, 1),
    ]
    generate_folder(("cto",), 7, tmp_path / "grown", difficulties=(1,))
    generate_folder(("cto",), 22, tmp_path / "grown", difficulties=(1,))
    assert hash_folder(tmp_path / "grown") == hash_folder(tmp_path / "whole")
    (tmp_path / "whole" / index.shards[1].path).unlink()
    generate_folder(("cto",), 22, tmp_path / "whole", difficulties=(1,))
    assert hash_folder(tmp_path / "grown") == hash_folder(tmp_path / "whole")


@pytest.mark.usefixtures("small_shards")
def test_a_family_without_enough_different_scenarios_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repeat_some(monkeypatch, 12, every=1)
    with pytest.raises(UserError, match=r"only 12 different scenarios among its first .* --count"):
        generate_folder(("cto",), 30, tmp_path, difficulties=(1,))


@pytest.mark.parametrize("family", [*FAMILIES, "team"])
def test_a_disagreement_of_oracles_stops_with_key_and_both_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str
) -> None:
    asked: list[str] = []

    def certify(case: Any) -> tuple[float, float]:
        asked.append(case.key)
        return (7.0, 8.0) if case.index == 3 else (7.0, 7.0)

    if family == "team":
        monkeypatch.setattr(row_maker, "certify_team", certify)
    else:
        monkeypatch.setitem(FAMILIES, family, replace(FAMILIES[family], certify=certify))
    with pytest.raises(OracleDisagreementError, match=rf"{family}/train/0/3/2: .* says 7.0, .* 8.0"):
        generate_folder((family,), 6, tmp_path / "stopped")
    assert len(asked) == 4


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


def test_two_writers_of_one_folder_are_refused(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="another process is writing to"):
            generate_folder(("cto",), 5, tmp_path)
    finally:
        os.close(descriptor)
    assert list(tmp_path.iterdir()) == []
    generate_folder(("cto",), 5, tmp_path)


def test_an_index_of_another_format_is_named(tmp_path: Path) -> None:
    generate_folder(("cto",), 3, tmp_path)
    file = tmp_path / DatasetIndex.FILE
    file.write_text(file.read_text().replace(DatasetIndex.FORMAT, "emads-dataset/1"))
    with pytest.raises(UserError, match="of another version; delete it"):
        DatasetIndex.read(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"families": ("ctoo",)}, "did you mean 'cto'"),
        ({"families": ("cto", "cto")}, "named twice"),
        ({"families": ("all", "cto")}, "all stands alone"),
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


@pytest.mark.parametrize("families", [(), ("all",)])
def test_no_family_means_all_in_registry_order(families: tuple[str, ...]) -> None:
    assert check_families(families) == (*FAMILIES, "team")
    assert check_families(("team", "coo")) == ("coo", "team")

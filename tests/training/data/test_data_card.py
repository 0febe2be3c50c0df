"""The data card: counts, statistics, baselines and commands are true; `load_dataset` opens by its header."""

import importlib.metadata
import json
import re
import shlex
from collections import Counter
from pathlib import Path

import pytest
import yaml
from data_folders import hash_folder, read_rows

from emads.cli import main
from roles.errors import UserError
from roles.team import Decision
from scenarios import team
from scenarios.registry import FAMILIES
from scenarios.team.demonstrations import hold_meeting
from scenarios.team.offers import load_report
from scenarios.team.value import judge_decision
from training.data.folders import datasets
from training.data.folders.card import describe_values
from training.data.folders.datasets import generate_folder
from training.data.folders.rows import COLUMNS, read_text

COUNT = 15


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All families, shards of ten, two splits of cto."""
    path = tmp_path_factory.mktemp("card") / "data"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets, "SCENARIOS_PER_SHARD", 10)
        generate_folder(("all",), COUNT, path)
        generate_folder(("cto",), 4, path, seed=3, split="test", difficulties=(1, 2, 4), unseal=True)
    return path


def read_table(folder: Path, heading: str) -> list[dict[str, str]]:
    """The rows of the table under a heading of the card, by column title."""
    section = (folder / "README.md").read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")]
    return [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]


def test_counts_and_difficulties(folder: Path) -> None:
    counts = {(row["family"], row["split"]): row for row in read_table(folder, "Counts")}
    assert len(counts) == 7
    assert counts["team", "train"]["rows"] == str(5 * COUNT)
    assert counts["cto", "train"] == {
        "family": "cto",
        "split": "train",
        "seed": "0",
        "scenarios": "15",
        "rows": "15",
        "drawn": "15",
        "exact repeats left out": "0",
        "near repeats left out": "0",
    }
    levels = {(row["family"], row["split"]): row for row in read_table(folder, "Scenarios by difficulty")}
    assert [levels["cto", "train"][level] for level in "124"] == ["8", "7", "0"]
    assert [levels["cto", "test"][level] for level in "124"] == ["2", "1", "1"]


def test_lengths_are_those_of_the_rows(folder: Path) -> None:
    rows = [row for path in sorted((folder / "coo").glob("train-*")) for row in read_rows(path)]
    for column in ("brief", "messages", "tools", "answer"):
        lengths = [len(read_text(row, column)) for row in rows]
        (shown,) = [
            row["characters"]
            for row in read_table(folder, "Lengths")
            if (row["family"], row["column"]) == ("coo", column)
        ]
        assert shown == f"{min(lengths)} / {sum(lengths) / len(lengths):.1f} / {max(lengths)}"


def test_answers_are_those_of_the_rows(folder: Path) -> None:
    rows = [row for path in sorted((folder / "reconcile").glob("train-*")) for row in read_rows(path)]
    options = Counter(json.dumps(json.loads(row["answer"])["option"]) for row in rows)
    (shown,) = [
        row["values"]
        for row in read_table(folder, "Answers")
        if (row["family"], row["field"]) == ("reconcile", "option")
    ]
    assert {value: float(share) for value, share in re.findall(r"`(.*?)` ([\d.]+) %", shown)} == {
        value: round(100 * count / COUNT, 1) for value, count in options.items()
    }


def test_baselines_stand_in_order_and_the_oracle_is_one(folder: Path) -> None:
    table = read_table(folder, "Baselines")
    assert {row["family"] for row in table} == {*FAMILIES, "team"}
    assert [(r["difficulty"], r["scenarios"]) for r in table if r["split"] == "test"] == [
        ("1-3", "3"),
        ("4-6", "1"),
    ]
    for row in table:
        assert float(row["oracle"]) == 1.0
        assert all(-0.3 <= float(row[name]) <= 1 for name in ("random", "greedy"))
        assert (row["constant"] == "-") == (row["family"] == "team")


def test_the_commands_on_the_card_make_the_same_bytes(tmp_path: Path, folder: Path) -> None:
    (block,) = re.findall(r"```bash\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    commands = block.splitlines()
    assert len(commands) == 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets, "SCENARIOS_PER_SHARD", 10)
        for command in commands:
            arguments = [
                str(tmp_path / "again") if word == "DATA" else word for word in shlex.split(command)[1:]
            ]
            assert main(arguments) == 0
    assert hash_folder(tmp_path / "again") == hash_folder(folder)


def test_the_card_states_what_team_rows_are_worth(folder: Path) -> None:
    """V of each case, from the rows' own final decisions; no claim of optima for `team`."""
    card = " ".join((folder / "README.md").read_text().split())
    assert "Every answer of a role family is the exact optimum" in card
    assert "Every answer is the exact optimum" not in card
    (row,) = read_table(folder, "Team meetings")
    values = []
    for index in range(COUNT):
        case = team.generate("train", 0, index, 1 + index % 2)
        meeting = hold_meeting(team.PlanGame(case))
        table = {seat: load_report(report) for seat, report in meeting.reports.items() if report is not None}
        optimum = case.optimum
        if optimum is None:
            continue
        judged = judge_decision(case, table, Decision.model_validate(meeting.decision))
        assert (judged.value == 1) == (judged.worth == optimum.worth)
        values.append(judged.value)
    assert row["scenarios"] == str(COUNT) == str(len(values))
    assert row["mean V"] == f"{sum(values) / COUNT:.3f}"
    assert 0 < float(row["mean V"]) < 1
    assert row["optima"] == str(values.count(1))


def test_the_test_split_is_sealed_and_its_command_unseals_it(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"sealed.*--unseal"):
        generate_folder(("cto",), 4, tmp_path / "no", split="test")
    assert not (tmp_path / "no").exists()
    assert "--split test --unseal" in (folder / "README.md").read_text()


def test_licence_version_and_digests(folder: Path) -> None:
    card = (folder / "README.md").read_text()
    header = yaml.safe_load(card.split("---\n")[1])
    assert header["license"] == "apache-2.0"
    assert f"emads {importlib.metadata.version('emads')}" in card
    digests = read_table(folder, "Made with")
    assert all(re.fullmatch("[0-9a-f]{16}", row["generator"]) for row in digests)
    assert len({row["generator"] for row in digests}) == len({row["data"] for row in digests}) == 7


def test_plain_load_dataset_gives_chats_and_logs_no_warning(
    tmp_path: Path, folder: Path, caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    import datasets as hf_datasets
    from trl import is_conversational

    hf_datasets.logging.enable_propagation()
    for family, split, num_rows in (
        ("cto", "train", COUNT),
        ("cto", "test", 4),
        ("team", "train", 5 * COUNT),
    ):
        loaded = hf_datasets.load_dataset(str(folder), family, split=split, cache_dir=str(tmp_path / "cache"))
        assert loaded.num_rows == num_rows
        assert list(loaded.features) == list(COLUMNS)
        row = loaded[0]
        assert row["key"].startswith(f"{family}/{split}/")
        assert is_conversational(row)
        assert [message["role"] for message in row["messages"][:2]] == ["system", "user"]
    called = hf_datasets.load_dataset(str(folder), "cto", split="train", cache_dir=str(tmp_path / "cache"))
    call = called[0]["messages"][2]["tool_calls"][0]["function"]
    assert isinstance(call["arguments"], dict)
    assert call["name"] in [tool["function"]["name"] for tool in called[0]["tools"]]
    hf_datasets.logging.disable_propagation()
    assert [record.getMessage() for record in caplog.records if record.levelname != "INFO"] == []
    assert [str(one.message) for one in recwarn if "datasets" in one.filename] == []


def test_values_are_described_by_share_or_by_range() -> None:
    assert describe_values(Counter({'"A"': 1, '"B"': 3})) == '`"B"` 75.0 %, `"A"` 25.0 %'
    assert describe_values(Counter({str(n): 2 for n in range(20, 40)})) == "20 numbers, 20 / 29.5 / 39"
    assert describe_values(Counter({f'"{n}"': 1 for n in range(8)})).startswith(
        '8 values, most often `"0"` 12.5 %'
    )

"""Validation of data folders: corrupt rows named one by one with file and reason."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_folders import read_rows, rewrite

from reliability.data import corrupt_rows
from reliability.data.corrupt_rows import CORRUPTIONS, try_corrupt_rows
from roles.errors import UserError
from training.data.folders.datasets import generate_folder
from training.data.folders.validation import ValidationReport, validate_folder


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.data.folders.datasets.SCENARIOS_PER_SHARD", 10)


@pytest.mark.parametrize("kind", CORRUPTIONS)
@pytest.mark.usefixtures("small_shards")
def test_a_corrupt_row_is_named_and_the_others_are_clean(tmp_path: Path, kind: str) -> None:
    generate_folder(("cto",), 20, tmp_path)
    spoil, reason = CORRUPTIONS[kind]
    rewrite(tmp_path / "cto" / "train-00001.parquet", lambda rows: spoil(rows[4]))
    report = validate_folder(tmp_path)
    assert (report.num_rows, report.num_clean) == (20, 19)
    (problem,) = report.problems
    assert (problem.file, problem.row) == ("cto/train-00001.parquet", 4)
    assert reason in problem.reason


@pytest.mark.usefixtures("small_shards")
def test_120_corrupt_rows_are_named_and_no_clean_row(tmp_path: Path) -> None:
    assert len(CORRUPTIONS) >= 12
    assert try_corrupt_rows(tmp_path, 120) == []


@pytest.mark.usefixtures("small_shards")
def test_an_overlooked_row_and_a_lost_row_would_be_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CORRUPTIONS, "no role", (lambda row: None, "role is missing"))
    assert "instead of role is missing" in " ".join(try_corrupt_rows(tmp_path / "a", 20))
    monkeypatch.setattr(corrupt_rows, "validate_folder", validate_nothing)
    assert try_corrupt_rows(tmp_path / "b", 20)[-1] == "0 rows were counted as clean, 20 are"


def validate_nothing(folder: Path) -> ValidationReport:
    return ValidationReport(num_rows=0, num_clean=0, problems=())


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


def test_validating_nothing_is_a_user_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no data in"):
        validate_folder(tmp_path)


NUM_PER_KIND = 2
NUM_ROWS = 80


@pytest.fixture(scope="module")
def spoilt(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[tuple[str, int], str]]:
    """A folder with two corrupt rows of every kind, and the reason each must get, by file and row."""
    folder = tmp_path_factory.mktemp("spoilt") / "data"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("training.data.folders.datasets.SCENARIOS_PER_SHARD", 20)
        generate_folder(("cto",), NUM_ROWS, folder)
    expected: dict[tuple[str, int], str] = {}
    kinds = [kind for kind in CORRUPTIONS for _ in range(NUM_PER_KIND)]
    for number, kind in enumerate(kinds):
        spoil, reason = CORRUPTIONS[kind]
        file, row = f"cto/train-0000{number % 4}.parquet", 2 * (number // 4)
        rewrite(folder / file, lambda rows, spoil=spoil, row=row: spoil(rows[row]))  # type: ignore[misc]
        expected[file, row] = reason
    return folder, expected


def test_corrupt_rows_of_each_kind_are_named_and_no_other(
    spoilt: tuple[Path, dict[tuple[str, int], str]],
) -> None:
    folder, expected = spoilt
    assert len(CORRUPTIONS) >= 12
    assert len(expected) == NUM_PER_KIND * len(CORRUPTIONS)
    report = validate_folder(folder)
    assert (report.num_rows, report.num_clean) == (NUM_ROWS, NUM_ROWS - len(expected))
    assert {(problem.file, problem.row) for problem in report.problems} == set(expected)
    for problem in report.problems:
        assert problem.row is not None
        assert expected[problem.file, problem.row] in problem.reason


@pytest.mark.usefixtures("small_shards")
def test_a_shard_under_a_foreign_name_is_named(tmp_path: Path) -> None:
    generate_folder(("cto",), 10, tmp_path)
    (tmp_path / "cto" / "train-00000.parquet").rename(tmp_path / "cto" / "more.parquet")
    problems = [str(problem) for problem in validate_folder(tmp_path).problems]
    assert problems == [
        "cto/train-00000.parquet: file is missing",
        "cto/more.parquet: name is not FAMILY/SPLIT-NUMBER.parquet",
    ]

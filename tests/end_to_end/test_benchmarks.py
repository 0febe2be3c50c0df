"""The measuring programs run and print whole tables."""

import sys

import pytest

from benchmarks import difficulty
from benchmarks.simulator import WAYS
from benchmarks.simulator import main as measure_simulator


def test_difficulty_tables_have_a_row_per_player_and_the_worst_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--count", "8", "--constant-cases", "4", "--difficulties", "1,5", "--families", "cto,cost"]
    monkeypatch.setattr(sys, "argv", ["difficulty", *options])
    with pytest.raises(SystemExit):
        difficulty.main()
    text = capsys.readouterr().out
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    players = ["random", "best constant", "majority", "heuristic"]
    expected = ["cto", "---", *players, "honest heuristic", "oracle", "cost", "---", *players, "oracle"]
    assert [row[0] for row in rows] == expected
    assert all(0 <= float(cell) <= 1 for row in rows if row[0] != "---" for cell in row[1:] if "." in cell)
    assert "8 cases per cell" in text


def test_a_rise_a_rich_guess_and_a_poor_oracle_are_faults() -> None:
    good = {"random": [0.1, 0.1], "constant": [0.1, 0.1], "majority": [0.1, 0.1], "oracle": [1.0, 1.0]}
    low, high = {**good, "greedy": [0.5, 0.52]}, {**good, "greedy": [0.8, 0.82]}
    assert list(difficulty.find_faults("cost", {4: high, 5: low})) == []
    assert "rises by 0.300 from 4 to 5" in next(difficulty.find_faults("cost", {4: low, 5: high}))
    guess = {**low, "majority": [0.2, 0.2]}
    assert list(difficulty.find_faults("cost", {4: guess})) == []
    assert "majority earns 0.200 at 5, bound 0.15" in next(difficulty.find_faults("cost", {5: guess}))
    assert "the heuristic 0.510" in next(difficulty.find_faults("cost", {3: {**low, "random": [0.6, 0.6]}}))
    assert "oracle" in next(difficulty.find_faults("cost", {3: {**low, "oracle": [1.0, 0.9]}}))


def test_simulator_table_has_a_row_per_way(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--in-flight", "1", "--episodes", "2", "--repeats", "1"]
    monkeypatch.setattr(sys, "argv", ["simulator", *options])
    measure_simulator()
    rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[0] for row in rows] == list(WAYS)
    assert all(float(row[1]) > 0 for row in rows)

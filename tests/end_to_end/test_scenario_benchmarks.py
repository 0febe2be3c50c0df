"""The programs that measure generators: whole tables, a peer by its own interpreter, found differences."""

import ast
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import data_reliability, dataset_determinism, needed_reports, scenarios
from scenarios import team
from scenarios.registry import FAMILIES
from scenarios.world.case import weigh

NAMES = (*FAMILIES, "team")
PEER = f"""#!{sys.executable}
import json, sys
if sys.argv[2] == "rates":
    print(json.dumps({{"version": "9.9", "maze": 50.0, "jugs": 200.0}}))
else:
    found = {{"count": int(sys.argv[3]), "shared": 0.75, "shared_far": 0.0, "repeats": 0.25}}
    print(json.dumps({{"version": "9.9", "maze": found}}))
"""


def run(monkeypatch: pytest.MonkeyPatch, program: object, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", ["program", *map(str, arguments)])
    program.main()  # type: ignore[attr-defined]


def test_both_sides_stand_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    peer, page = tmp_path / "peer", tmp_path / "page.md"
    peer.write_text(PEER)
    peer.chmod(0o755)
    page.write_text(f"# Title\n\n{scenarios.MARK}\n\nold figures\n")
    options = ("--count", 4, "--difficulties", "1,4", "--seconds", 0.01, "--repeats", 1, "--peer", peer)
    run(monkeypatch, scenarios, *options, "--write", page)
    text = page.read_text()
    assert text.startswith(f"# Title\n\n{scenarios.MARK}\n\nMeasured on ")
    assert "old figures" not in text
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    rates = [row for row in rows if row[0] in NAMES and len(row) == 4]
    assert [row[:2] for row in rates] == [[name, level] for name in NAMES for level in ("1", "4")]
    assert all(float(cell.replace(",", "")) > 0 for row in rates for cell in row[2:])
    overlap = {row[0]: row[1:] for row in rows if row[0] in NAMES and len(row) == 7}
    assert overlap == {name: ["24", "0", "0", "0", "0", "0"] for name in NAMES}
    assert ["maze", "50"] in rows
    assert ["maze", "4", "75.00 %", "0.00 %", "25.00 %"] in rows
    assert "reasoning-gym 9.9" in text
    assert "Ratio of the geometric means" in text


def test_shared_and_repeated_scenarios_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    family = FAMILIES["coo"]
    monkeypatch.setattr(
        scenarios,
        "generate_case",
        lambda name, split, seed, index, difficulty: family.generate("train", seed, index // 2, 1),
    )
    # three splits of each seed are one stream of five cases, each said twice
    assert scenarios.measure_own_overlap("coo", 10) == ["coo", "60", "30", "30", "30", "30", "0"]


def test_equal_folders_pass(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(dataset_determinism, "generate", lambda out, arguments, seed, workers: {"a": "1"})
    run(monkeypatch, dataset_determinism, "--hash-seeds", 3, "--workers", "1,2")
    assert capsys.readouterr().out.splitlines()[-1].startswith("6 runs, all identical: ")


def test_a_difference_is_named_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        dataset_determinism, "generate", lambda out, arguments, seed, workers: {"a": "1", "b": str(seed)}
    )
    with pytest.raises(SystemExit):
        run(monkeypatch, dataset_determinism, "--hash-seeds", 3, "--workers", "1")
    assert "hash seed 1, 1 workers: DIFFERENT: b" in capsys.readouterr().out


def test_the_peer_program_needs_nothing_of_ours() -> None:
    tree = ast.parse(scenarios.SIDE.read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert "reasoning_gym" in names
    assert not any(isinstance(node, ast.ImportFrom) for node in ast.walk(tree))
    assert names - {"reasoning_gym"} <= set(sys.stdlib_module_names) | {"importlib.metadata"}


def test_every_report_is_needed_at_every_band_of_difficulty() -> None:
    losses: dict[str, list[float]] = {"reports": [], "facts": []}
    for difficulty, chair, found in needed_reports.measure(80, (1, 5, 10)):
        assert all(found[role] < found["-"] for role in ("cto", "coo", "risk", "cost")), (difficulty, chair)
        losses[chair].append(needed_reports.mean_loss(found))
        if chair == "facts":
            assert found["-"] == 1.0
    assert all(loss >= needed_reports.LEAST_LOSS for values in losses.values() for loss in values)


def test_a_seat_without_stakes_and_limit_is_not_needed() -> None:
    case = team.generate("test", 0, 0, 3)
    silent = {**case.seats["risk"].facts, "stakes": 0, "limit": 10}
    seats = {**case.seats, "risk": replace(case.seats["risk"], facts=silent)}
    truth = weigh({role: seat.facts for role, seat in seats.items()})
    case = replace(case, seats=seats, truth=truth)
    assert needed_reports.decide_by_facts(case, "risk") == needed_reports.decide_by_facts(case, "-")


def test_the_battery_counts_what_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--only", "R14", "--count", 20)
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, data_reliability, *options)
    assert ended.value.code == 0
    assert "| R14 | spoilt rows, 20 kinds: named, clean rows kept | 20 | 0 |" in capsys.readouterr().out
    monkeypatch.setattr(data_reliability, "try_corrupt_rows", lambda folder, count: ["row 3: overlooked"])
    battery = data_reliability.BATTERIES["R14"]
    assert list(battery.trials(Path(), 3)) == ["row 3: overlooked", "", ""]


def test_a_reply_and_another_failure_than_the_named_one_are_told_apart() -> None:
    server_module = data_reliability._load_server()
    with server_module.serve(lambda _body: {"role": "assistant", "content": "done"}) as server:
        server.faults = ["500", "half JSON", None]
        found = list(data_reliability._expect(server, "server_error", 3, num_retries=0))
    assert found == ["", "not_json instead of server_error", "a reply instead of server_error"]

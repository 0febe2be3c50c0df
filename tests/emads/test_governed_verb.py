"""`emads simulate --protocol full`: plays, goes on where it stopped, and says what is wrong in one line."""

from pathlib import Path

import pytest
from episode_rows import read_governed

from emads.cli import main

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def test_the_same_call_on_the_same_store_gives_the_same_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "s.db"
    call = ["simulate", "--protocol", "full", "--team", "scripted", "--count", "2", "--db", str(store)]
    assert main(call) == 0
    first = capsys.readouterr().out
    assert main(call) == 0
    assert capsys.readouterr().out == first
    assert first.count("  First plan") == 2
    assert store.with_name("s.db.key").stat().st_mode & 0o777 == 0o600


def test_without_a_store_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["simulate", "--protocol", "full", "--team", "scripted"]) == 0
    assert "accountable" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_written_cases_play_with_the_experts_where_they_give_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ["simulate", "--protocol", "full", "--team", "scripted", "--html", str(tmp_path / "m")]
    assert main([*call, str(EXAMPLES / "card-payments.yaml"), "--world", "1"]) == 0
    out = capsys.readouterr().out
    assert "alert: COO at 20 % of its limit, 20 k$ lost" in out
    assert "Re-plan 1 of at most 3: option C" in out
    (page,) = (tmp_path / "m").iterdir()
    said = "Monitoring raised an alert on option B: COO at 20 % of its limit, 20 k$ lost."
    assert said in page.read_text()


@pytest.mark.parametrize("protocol", ["assess", "full"])
def test_one_unplayable_case_is_skipped_and_the_rest_is_played(
    protocol: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = tmp_path / "words.md"
    front = "---\ntitle: x\nbudget: 9\noptions:\n  A: {name: x, base: 1}\n  B: {name: y, base: 2}\n---\n"
    words.write_text(front + "## CTO\nIt is late.\n## COO\nIt is cold.\n")
    call = ["simulate", "--team", "scripted", "--protocol", protocol, "--html", str(tmp_path / "m")]
    cases = sorted(map(str, EXAMPLES.glob("*.[my]*")))
    assert main([*call, str(words), *cases]) == 2
    said = capsys.readouterr()
    assert f"skipped: {words}: seats.cto gives words alone" in said.err
    assert said.out.count("minutes:  ") == len(cases)
    assert main([*call, str(words)]) == 2
    assert "error: " in capsys.readouterr().err


def test_a_companys_later_cases_are_told_what_earlier_ones_showed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ["simulate", "--protocol", "full", "--team", "scripted", "--company", "Fjord Telecom"]
    assert main([*call, "--count", "2", "--jsonl", str(tmp_path / "e.jsonl")]) == 0
    first, second = read_governed(tmp_path / "e.jsonl")
    assert first.precedents == ()
    (recalled,) = second.precedents
    assert recalled["case"] == first.episode.scenario_key
    assert [one["upgrade"] for one in recalled["actuals"]]
    assert "recalls " in capsys.readouterr().out
    monkeypatch.setattr("emads.commands.simulate.MOST_DRAWN", 12)
    assert main([*call, "--count", "99"]) == 2
    assert "lower --count" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ("--team scripted --protocol fulll", "did you mean 'full'"),
        ("--team scripted --db x.db", "--db goes with --protocol full"),
        ("--team scripted --reviewer terminal", "--reviewer goes with --protocol full"),
        (
            "--team scripted --protocol full --reviewer web",
            "--reviewer web needs --db FILE",
        ),
        ("--team scripted --protocol full --reviewer wep", "did you mean 'web'"),
        ("--team scripted --world 3", "--world goes with --protocol full"),
        ("--team scripted --company Northbank", "--company goes with --protocol full"),
        ("--team scripted --protocol full --company Nortbank", "did you mean 'Northbank'"),
        ("--protocol full --team scripted --agent ceo=code", "unknown role 'ceo'"),
        ("--protocol full --team scripted --limit steps=3", "unknown limit 'steps'"),
        ("--protocol full --team scripted case.yaml", "case.yaml"),
        ("--protocol full /nonexistent", "no run in /nonexistent"),
        ("--protocol full --team scripted --db /nonexistent/s.db", "/nonexistent/s.db.key"),
    ],
)
def test_mistakes_are_one_line(
    arguments: str,
    part: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["simulate", *arguments.split()]) == 2
    error = capsys.readouterr().err
    assert part in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []

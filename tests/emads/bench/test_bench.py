"""The bench: a pinned set, plays that go on where they stopped, cards that are compared."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import fail
from table_server import answer_as_experts
from teacher_server import TeacherServer, serve

from emads.bench import cases as bench_cases
from emads.bench.card import BenchPlay, PlayFile, build_card, compare_cards, read_card, render_card
from emads.bench.cases import BANDS, CELLS, BenchCase, check_pins, compute_digest, find_cell, list_cases
from emads.bench.run import play_into
from emads.cli import main
from emads.seats.players import read_api_options
from emads.team import Team, load_team
from roles.errors import UserError
from scenarios.base import Scenario
from scenarios.registry import FAMILIES
from scenarios.team import TeamScenario, generate
from simulator.engines.openai.chat_engine import EndpointUsage

NAME = "bench set 7"


def draw_few() -> list[BenchCase]:
    """Two easy cases of the table and one of each role family."""
    few: list[BenchCase] = [generate("test", 5, index, 1 + index) for index in range(2)]
    return few + [FAMILIES[kind].generate("test", 5, 0, 1) for kind in FAMILIES]


FEW = draw_few()
TABLES = [case for case in FEW if isinstance(case, TeamScenario)]


def load(*seats: str, api: Sequence[str] = ()) -> Team:
    return load_team(seats=list(seats), api=read_api_options(api))


def play(folder: Path, team: Team, cases: Sequence[BenchCase] = FEW) -> str | None:
    return play_into(folder, team, cases, NAME)


@pytest.mark.slow
def test_the_set_is_the_pinned_one() -> None:
    check_pins()
    cases = list_cases()
    assert len(cases) == len({case.key for case in cases}) == 600
    assert Counter(find_cell(case).name for case in cases) == {cell.name: cell.num_cases for cell in CELLS}
    for case in cases:
        assert case.difficulty in BANDS[find_cell(case).band]
    first = Counter(find_cell(case).name for case in cases[:30])
    assert first == {cell.name: cell.num_cases // 20 for cell in CELLS}  # a round holds every cell


def test_a_changed_generator_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = CELLS[0]
    check_pins([cell])
    drawn = bench_cases.draw_cell(cell)
    scenario = drawn[3]
    assert isinstance(scenario, Scenario)
    changed = replace(scenario, brief="One word more.")
    monkeypatch.setattr(bench_cases, "draw_cell", lambda _cell: (*drawn[:3], changed, *drawn[4:]))
    assert compute_digest(cell) != bench_cases.read_pins()["digests"][cell.name]
    with pytest.raises(UserError, match=r"cto/easy are not those of bench set 7: .* raise SET_VERSION"):
        check_pins([cell])


def test_experts_play_alone_and_at_the_table_and_the_card_says_so(tmp_path: Path) -> None:
    assert play(tmp_path / "experts", load("all=scripted:measured", "reconcile=scripted:exact")) is None
    assert play(tmp_path / "random", load("all=scripted:random")) is None
    card = read_card(tmp_path / "experts")
    assert card["score"]["roles alone"]["mean"] == 1.0
    assert card["num_cases"] == {"whole_set": 600, "asked": len(FEW), "played": len(FEW)}
    assert {name for name, one in card["legal"].items() if one["read"] < one["asked"]} == set()
    assert {"cto alone", "cto report", "cto vote", "reconcile decision"} <= set(card["legal"])
    assert card["cost"] == 0.0
    page = (tmp_path / "experts" / "card.md").read_text()
    assert page == render_card(card)
    assert "not to be quoted as the set's result" in page
    lines = compare_cards(tmp_path / "random", tmp_path / "experts")
    (whole,) = [line.split() for line in lines if line.startswith("all ")]
    assert whole[1] == str(len(FEW))
    assert float(whole[4]) > 0.2


def test_a_killed_bench_goes_on_and_ends_in_the_same_card(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    team = load("all=scripted:greedy")
    play(whole, team)
    play(broken, team, FEW[:4])
    plays = broken / "plays.jsonl"
    plays.write_bytes(plays.read_bytes()[:-20])  # killed while it wrote
    assert play(broken, team) is None
    assert sorted(PlayFile(plays).read(), key=str) == sorted(PlayFile(whole / "plays.jsonl").read(), key=str)
    assert read_card(broken)["score"] == read_card(whole)["score"]
    with pytest.raises(UserError, match=r"holds plays of seats .* choose another --out"):
        play(broken, load("all=scripted:random"))


def serve_tables() -> list[TeamScenario]:
    return list(TABLES)


def load_server(server: TeacherServer, folder: Path, max_cost: float) -> Team:
    return load(
        f"all=openai:tiny@{server.url}",
        api=[
            *("price=1000,1000", f"max_cost={max_cost}", f"replies={folder / 'replies.jsonl'}"),
            *("max_completion_tokens=20", "backoff_s=0.01", "max_retries=1"),
        ],
    )


def test_a_cost_limit_stops_a_bench_and_faults_are_asked_again(tmp_path: Path) -> None:
    with serve(answer_as_experts(serve_tables())) as server:
        stop = play(tmp_path / "first", load_server(server, tmp_path / "first", 100.0), TABLES[:1])
        assert stop is None
        needed = read_card(tmp_path / "first")["cost"]
        folder = tmp_path / "limited"
        sizes = sorted(len(json.dumps(body)) for body in server.bodies)
        limit = sizes[len(sizes) // 2] / 1000  # what a request of middling length may cost at most
        whole = len(server.bodies)
        with pytest.raises(UserError, match="no case was played to its end"):
            play(folder, load_server(server, folder, limit), TABLES[:1])
        paid = len(server.bodies) - whole
        assert paid > 0
        assert play(folder, load_server(server, folder, 100.0), TABLES[:1]) is None
        card = read_card(folder)
        assert card["cost"] == pytest.approx(needed)
        assert len(server.bodies) == 2 * whole  # what was paid for was not asked again
        server.faults = ["500"] * 8  # four seats, two attempts each
        both = play(folder, load_server(server, folder, 100.0), TABLES)
        assert both is not None
        assert "1 cases got no answer from an engine" in both
        assert read_card(folder)["num_cases"]["played"] == 1
        server.faults = []
        assert play(folder, load_server(server, folder, 100.0), TABLES) is None
    card = read_card(folder)
    assert card["num_cases"]["played"] == 2
    assert card["usage"]["num_requests"] == 2 * needed_requests(folder)


def needed_requests(folder: Path) -> float:
    """Requests of a case on average, by the turns of its plays."""
    plays = PlayFile(folder / "plays.jsonl").read()
    return sum(one.turns for one in plays) / len(plays)


def make_play(key: str, score: float) -> BenchPlay:
    return BenchPlay(
        key=key,
        kind="cto",
        band="easy",
        difficulty=1,
        score=score,
        reward=score,
        legal={"cto alone": (1, 1)},
        turns=1,
        tool_calls=0,
        ended_by={"cto": "answer"},
        usage=EndpointUsage(),
    )


def test_cards_are_paired_by_case_and_only_within_one_set(tmp_path: Path) -> None:
    for name, set_name, scores in (
        ("a", NAME, {"x": 0.5, "y": 0.25}),
        ("b", NAME, {"y": 0.75, "z": 1.0}),
        ("c", "bench set 9", {"y": 1.0}),
        ("d", NAME, {"w": 1.0}),
    ):
        folder = tmp_path / name
        folder.mkdir()
        file = PlayFile(folder / "plays.jsonl")
        plays = [make_play(key, score) for key, score in scores.items()]
        for one in plays:
            file.add(one)
        card = build_card(
            plays, set_name=set_name, label=name, seats={}, cost=None, wall_s=1, versions={}, num_cases=2
        )
        (folder / "card.json").write_text(json.dumps(card))
    lines = compare_cards(tmp_path / "a", tmp_path / "b")
    (row,) = [line for line in lines if line.startswith("cto easy")]
    assert row.split()[2:6] == ["1", "0.250", "0.750", "+0.500"]
    with pytest.raises(UserError, match=r"is of bench set 7 and .* of bench set 9"):
        compare_cards(tmp_path / "a", tmp_path / "c")
    with pytest.raises(UserError, match="have no case in common"):
        compare_cards(tmp_path / "a", tmp_path / "d")
    with pytest.raises(UserError, match="no bench card in"):
        compare_cards(tmp_path / "a", tmp_path)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ("bench --cases 3", ["name the players", "--seat all=openai:MODEL@"]),
        ("bench --seat all=scripted --cases 0", ["--cases 0 must be 1 or more"]),
        ("bench --seat cto=scripted", ["nobody plays 'coo'"]),
        ("bench --api price=1,1", ["--api price=1,1 goes with --seat"]),
        ("bench --seat all=scripted:lean", ["unknown habit of reconcile 'lean'"]),
        ("bench a b c", ["name two folders of benches"]),
        ("bench /nonexistent /nonexistent", ["no bench card in /nonexistent"]),
        ("simulate --seat all=openai:m", ["openai:MODEL@http://host:8000/v1"]),
        ("simulate --api max_cost=3 --team scripted", ["--api max_cost=3 goes with --seat"]),
        ("evaluate --seat all=scripted --again", ["--again does not go with --seat"]),
        ("evaluate --seat all=scripted --count 0", ["--count 0 must be 1 or more"]),
    ],
)
def test_a_mistake_names_value_and_remedy(
    arguments: str, parts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    line = fail(capsys, *arguments.split())
    assert [part for part in parts if part not in line] == []


@pytest.mark.slow
def test_the_verbs_play_seats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scripted = ["--seat", "all=scripted", "--seat", "cto=scripted:lean"]
    assert main(["bench", *scripted, "--cases", "1", "--out", str(tmp_path / "bench")]) == 0
    assert "card: " in capsys.readouterr().out
    assert main(["evaluate", *scripted, "--count", "3", "--out", str(tmp_path / "eval")]) == 0
    assert "table, team reward R | 3 |" in capsys.readouterr().out
    assert main(["diagnose", *scripted, "--count", "20", "--out", str(tmp_path / "diagnosis")]) == 0
    assert "diagnostics: " in capsys.readouterr().out
    assert main(["simulate", *scripted, "--count", "2"]) == 0
    with serve(answer_as_experts([])) as server:
        server.faults = ["500"] * 20
        seat = ["--seat", f"coo=openai:tiny@{server.url}", "--api", "price=1000,1000"]
        limit = ["--api", "max_cost=0.001", "--api", f"replies={tmp_path / 'replies.jsonl'}"]
        assert main(["simulate", *scripted, *seat, *limit]) == 8
    assert "raise max_cost" in capsys.readouterr().err

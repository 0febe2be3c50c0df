"""Hidden profiles: HiddenBench's layout, damaged files by line, facts that stay with their seats."""

import json
from pathlib import Path
from typing import Any

import pytest

from roles.errors import UserError
from roles.team import SPECIALISTS
from scenarios.suites import (
    HiddenProfileGame,
    HiddenProfileTask,
    deal_facts,
    normalise,
    read_hidden_profiles,
)


def make_task(number: int, num_hidden: int = 4) -> dict[str, Any]:
    """A task in HiddenBench's layout, with invented text."""
    return {
        "id": number,
        "name": "hall",
        "description": f"Task {number}: choose a hall for the fair.",
        "shared_information": ["North Hall is cheap.", "Pier Hall is far."],
        "hidden_information": [f"Secret fact {place}." for place in range(num_hidden)],
        "possible_answers": ["North Hall", "Pier Hall", "Town Hall"],
        "correct_answer": "Pier Hall",
    }


@pytest.mark.parametrize("form", ["list", "lines"])
def test_a_list_and_lines_are_read_alike(tmp_path: Path, form: str) -> None:
    tasks = [make_task(1), {**make_task(25, 3), "rationale": "not read"}]
    path = tmp_path / "benchmark.json"
    text = json.dumps(tasks, indent=2) if form == "list" else "\n".join(map(json.dumps, tasks)) + "\n"
    path.write_text(text)
    first, second = read_hidden_profiles(path)
    assert [first.key, second.key] == ["hidden-profile/1", "hidden-profile/25"]
    assert tuple(first.seats) == SPECIALISTS
    assert tuple(second.seats) == SPECIALISTS[:3]
    assert first.right == "Pier Hall"


@pytest.mark.parametrize("num_hidden", [2, 3, 4, 7])
def test_every_fact_is_dealt_once_and_stays_with_its_seat(num_hidden: int) -> None:
    case = deal_facts(HiddenProfileTask.model_validate(make_task(1, num_hidden)))
    game = HiddenProfileGame(case)
    briefs = {seat: game.write_report_brief(seat) for seat in case.seats}
    assert len(briefs) == min(num_hidden, 4)
    for place in range(num_hidden):
        fact = f"Secret fact {place}."
        assert sum(fact in brief for brief in briefs.values()) == 1
        assert fact not in game.write_decision_brief(dict.fromkeys(case.seats))
        assert fact in game.write_single_brief()
    for brief in (*briefs.values(), game.write_single_brief(), game.write_decision_brief({})):
        assert "North Hall is cheap." in brief
        assert brief.count("Pier Hall") == 2  # a fact and an answer: nothing marks the right one


def test_answers_are_read_word_for_word_but_for_case_and_spaces() -> None:
    game = HiddenProfileGame(deal_facts(HiddenProfileTask.model_validate(make_task(1))))
    assert game.read_decision({}, '{"answer": " pier  hall"}') == {"answer": "Pier Hall", "reason": ""}
    assert game.read_decision({}, '{"answer": "Pier Hall or North Hall"}') is None
    assert game.read_vote('{"vote": "object", "answer": "Town Hall"}') is not None
    assert game.read_vote('{"vote": "object"}') is None
    assert normalise("A  b\n") == "a b"


def test_the_vote_brief_holds_what_the_others_said() -> None:
    game = HiddenProfileGame(deal_facts(HiddenProfileTask.model_validate(make_task(1))))
    said = game.read_report("coo", '{"answer": "Pier Hall", "say": "The roof\\nleaks."}')
    brief = game.write_vote_brief(
        {"answer": "Town Hall", "reason": "r"}, "cto", {"cto": said, "coo": said, "risk": None}
    )
    assert brief.splitlines() == [
        '- COO prefers "Pier Hall": The roof leaks.',
        "- Risk said nothing that could be read.",
        'The draft: "Town Hall".',
        "Reason: r",
        "Vote.",
    ]
    assert game.write_objection_brief({"cto": {"vote": "object", "reason": "Wet."}}).startswith(
        "- CTO objects: Wet."
    )


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"correct_answer": "Moon Hall"}, "none of possible_answers"),
        ({"possible_answers": ["a", "A"]}, "twice"),
        ({"hidden_information": ["one"]}, "hidden_information"),
        ({"shared_information": "text"}, "shared_information"),
        ({"description": " "}, "description"),
        ({"id": 1}, "the id 1 again"),
    ],
)
def test_a_damaged_task_is_named_by_file_and_row(tmp_path: Path, change: dict[str, Any], what: str) -> None:
    path = tmp_path / "tasks.json"
    first = json.dumps(make_task(1), indent=1)
    path.write_text(f"[\n{first},\n{json.dumps({**make_task(2), **change})}\n]\n")
    with pytest.raises(UserError, match=what) as error:
        read_hidden_profiles(path)
    assert "tasks.json row 2: " in str(error.value)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("[\n{}\n", "at line 3"),
        ('[\n{"id": 1\n', "at line 3"),
        ("", "holds no task"),
        ("[]", "holds no task"),
        ("[1]", "row 1: task"),
        ("[{}]", "row 1: id"),
        ("nonsense", "row 1: not JSON"),
    ],
)
def test_a_file_that_is_no_list_of_tasks_is_refused(tmp_path: Path, text: str, where: str) -> None:
    path = tmp_path / "tasks.json"
    path.write_text(text)
    with pytest.raises(UserError, match=where):
        read_hidden_profiles(path)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tasks.json"
    path.write_text("[" + json.dumps(make_task(1)))
    with pytest.raises(UserError, match="is no JSON list"):
        read_hidden_profiles(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="is not utf-16-le"):
        read_hidden_profiles(path)
    with pytest.raises(UserError, match="cannot read"):
        read_hidden_profiles(tmp_path / "none.json")

"""A person plays a seat at the terminal: fields, mistakes, tools, and the case that goes on."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from emads.api import play
from emads.cli import main
from emads.seats.person import PersonEngine
from emads.seats.players import read_seats
from emads.team import load_team
from roles.errors import InfrastructureError, UserError
from scenarios.team import PlanGame, generate
from simulator.chat import MessageChat
from simulator.engines.base import CompletionRequest, Sampling
from simulator.terminal import Terminal

CASE = generate("test", 0, 1, 2)
CHAT = MessageChat()


def say(*lines: str) -> tuple[Callable[[str], str], list[str]]:
    """A person who says these lines and then leaves, and what was asked."""
    given, asked = iter(lines), list[str]()

    def read_line(question: str) -> str:
        asked.append(question)
        try:
            return next(given)
        except StopIteration:
            raise EOFError from None

    return read_line, asked


def engine_of(*lines: str) -> tuple[PersonEngine, list[str], list[str]]:
    read_line, asked = say(*lines)
    written: list[str] = []
    terminal = Terminal(read_line=read_line, write=written.append, is_terminal=lambda: True)
    return PersonEngine(terminal), asked, written


def complete(engine: PersonEngine, ids: tuple[int, ...], seat: str = "coo") -> str:
    request = CompletionRequest(
        policy=seat, session="s", prompt_ids=ids, sampling=Sampling(max_completion_tokens=2_000)
    )
    done = asyncio.run(engine.complete(request))
    assert done.finish_reason == "stop"
    return CHAT.decode(done.token_ids)


def opening(seat: str = "coo", *, with_tools: bool = True) -> tuple[int, ...]:
    game = PlanGame(CASE)
    return CHAT.open(game.prompt_role(seat), game.write_report_brief(seat), with_tools=with_tools)


def test_a_report_field_by_field() -> None:
    engine, asked, written = engine_of(
        "", "yes", "A", "night shift, spare crew", "nine", "9", "14", "no", "A", "", "A fails without it."
    )
    assert complete(engine, opening()) == (
        '{"offers": [{"option": "A", "part": ["night shift", "spare crew"], "cost": 9, "worth": 14}],'
        ' "needs": ["A"], "veto": [], "note": "A fails without it."}'
    )
    assert asked[0] == "report, reply, vote, look, json (report)? "
    assert "'nine' is no whole number" in written
    assert PlanGame(CASE).write_report_brief("coo").splitlines()[0] in "\n".join(written)


def test_what_the_schema_refuses_is_asked_again() -> None:
    engine, _, written = engine_of(
        "dance", "json", '{"vote": "perhaps"}', "vote", "maybe", "", "vote", "object", "Dear."
    )
    assert complete(engine, opening()) == '{"vote": "object", "reason": "Dear."}'
    assert "'dance' is none of report, reply, vote, look, json" in written
    assert sum(line.startswith("not an answer: ") for line in written) == 1


def test_tools_can_be_used_and_only_what_is_new_is_shown() -> None:
    engine, _, written = engine_of(
        "look", "fly", "look", "measure", "A", "x, y", "json", '{"vote": "accept"}'
    )
    first = opening()
    call = complete(engine, first)
    assert '"measure"' in call
    del written[:]
    ids = (*first, *CHAT.encode(call), CHAT.end_id, *CHAT.observe("cost 9"))
    assert complete(engine, ids) == '{"vote": "accept"}'
    assert written == ["cost 9"]


def test_who_leaves_ends_the_case_as_a_fault_and_no_terminal_is_said_at_once() -> None:
    engine, _, _ = engine_of("vote")
    with pytest.raises(InfrastructureError, match="the person who plays coo left"):
        complete(engine, opening())
    with pytest.raises(UserError, match="needs a terminal"):
        PersonEngine(Terminal(is_terminal=lambda: False))
    with pytest.raises(UserError, match="write human"):
        read_seats(["coo=human:ann"])


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Somebody at the terminal who offers nothing and objects."""
    asked: list[str] = []

    def read_line(question: str) -> str:
        asked.append(question)
        if question.startswith("report"):
            return "vote" if question.endswith("(vote)? ") else "report"
        if question.startswith("vote ("):
            return "object"
        return "no" if "yes or no" in question else ""

    at_terminal = partial(PersonEngine, Terminal(read_line=read_line, is_terminal=lambda: True))
    monkeypatch.setattr("emads.team.PersonEngine", at_terminal)
    return asked


def test_a_seat_at_the_table_is_played_by_a_person(
    person: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", "--team", "scripted", "--seat", "coo=human", "--index", "1"]) == 0
    out = capsys.readouterr().out
    assert "You play COO" in out
    assert "COO reports" in out
    assert any(question.startswith("offers: one") for question in person)


def test_a_person_at_the_table_is_in_the_record(person: list[str], tmp_path: Path) -> None:
    team = load_team("scripted", seats=["coo=human"])
    (played,) = play(team, 1, first_index=1)
    assert played.episode.error is None
    assert {turn.policy_version for turn in played.episode.trajectories["coo"].turns} == {"coo@human"}
    assert played.episode.reports["coo"] == '{"offers": [], "needs": [], "veto": [], "note": ""}'

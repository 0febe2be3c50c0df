"""Watching episodes: events in order and complete, nothing without an observer."""

import asyncio
import io
import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from episode_events import Diary
from rich.console import Console
from team_tables import CHAT, SAMPLING, SEATS, TEAM, oracle_engine

from evaluation.minutes.live_view import live_view
from roles.errors import InfrastructureError
from roles.registry import ROLES
from scenarios.base import ToolCall
from scenarios.team import PlanGame, PlayableCase, TeamScenario, generate
from simulator.agents.agent import Agent
from simulator.agents.scripted_policies import oracle_team
from simulator.engines.base import Completion, CompletionRequest
from simulator.engines.scripted import ScriptedEngine
from simulator.graph.runner import play_episodes
from simulator.observer import Watch
from simulator.records import Episode
from simulator.tool_calls import format_tool_call

SHORT = partial(PlanGame, style="short")


def draw(count: int) -> list[TeamScenario]:
    return [generate("train", 0, index, 1 + index % 2) for index in range(count)]


class Diaries:
    """A diary per episode, by session."""

    def __init__(self) -> None:
        self.by_session: dict[str, Diary] = {}

    def watch(self, case: PlayableCase, session: str) -> Diary:
        assert case.key in session
        return self.by_session.setdefault(session, Diary())


def play(cases: Sequence[PlayableCase], watch: Watch | None, **changed: Any) -> list[Episode]:
    given = {"rounds": 1, "watch": watch, "make_game": SHORT, **changed}
    engine = given.pop("engine", None) or oracle_engine(cases)
    return asyncio.run(play_episodes(cases, TEAM, engine, CHAT, SAMPLING, **given))


def test_an_observer_hears_everything_in_order() -> None:
    cases, diaries = draw(6), Diaries()
    episodes = play(cases, diaries.watch)
    assert len(diaries.by_session) == len(cases)
    for episode, diary in zip(episodes, diaries.by_session.values(), strict=True):
        assert sorted(diary.kinds()[:8]) == ["report"] * 4 + ["turn"] * 4
        assert diary.kinds()[8:10] == ["turn", "decision"]
        assert sorted(diary.kinds()[10:-1]) == ["turn"] * 4 + ["vote"] * 4
        assert diary.kinds()[-1] == "end"
        heard = {(kind, role): rest for kind, role, *rest in diary.events if kind != "turn"}
        assert {role: heard["report", role][0] for role in SEATS} == episode.reports
        assert {role: heard["vote", role][0] for role in SEATS} == episode.votes
        assert heard["decision", "reconcile"][0] == episode.decision
        assert heard["end", ""] == [None]
        turns = [event[2] for event in diary.events if event[0] == "turn"]
        assert sorted(map(id, turns)) == sorted(id(t) for p in episode.trajectories.values() for t in p.turns)


def test_a_question_and_its_reply_are_told_between_the_reports_and_the_decision() -> None:
    (case,), diaries = draw(1), Diaries()
    experts = oracle_team([case], report_habit="lean")
    asked = {"ask": {"seat": "risk", "option": "A", "cost_at_most": 50}}

    def asks_first(transcript: str, rng: Any) -> str:
        return experts["reconcile"](transcript, rng) if '{"ask"' in transcript else json.dumps(asked)

    engine = ScriptedEngine(CHAT, seeded={**experts, "reconcile": asks_first})
    (episode,) = play([case], diaries.watch, engine=engine, make_game=partial(SHORT, questions=1))
    (diary,) = diaries.by_session.values()
    told = [event for event in diary.events if event[0] not in ("turn", "vote", "report")]
    assert [event[0] for event in told] == ["ask", "reply", "decision", "end"]
    assert told[0][2:] == (episode.asked[0].ask, asked["ask"])
    assert told[1][1:3] == ("risk", episode.asked[0].reply)
    assert told[2][4] == 1  # the first draft, though it is the second message


def test_watching_changes_nothing() -> None:
    cases = draw(6)
    assert play(cases, Diaries().watch) == play(cases, None)


def test_without_an_observer_no_clock_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> float:
        raise AssertionError("nobody asked for the time")

    monkeypatch.setattr("simulator.agents.agent.time.perf_counter", refuse)
    assert play(draw(1), None)[0].error is None


def test_tools_are_told_with_their_answers() -> None:
    calls = [
        format_tool_call("", ToolCall(name="measure", arguments={"option": "B"})),
        "<tool_call>x</tool_call>",
        "done",
    ]
    turns, diary = iter(calls), Diary()
    agent = Agent(
        role=ROLES["cto"],
        policy="cto",
        engine=ScriptedEngine(CHAT, {"cto": lambda transcript: next(turns)}),
        chat=CHAT,
        sampling=SAMPLING,
        session="s",
        call_tool=lambda call: "latency 35",
        observer=diary,
    )
    asyncio.run(agent.answer("brief"))
    assert diary.kinds() == ["turn", "tool", "turn", "tool", "turn"]
    assert diary.events[1] == ("tool", "cto", calls[0], "latency 35")
    assert diary.events[3][3].startswith("error: ")


class Broken:
    """An engine that fails when it is asked for the reconciler."""

    def __init__(self, cases: Sequence[PlayableCase]) -> None:
        self.engine = oracle_engine(cases)

    async def complete(self, request: CompletionRequest) -> Completion:
        if request.policy == "reconcile":
            raise InfrastructureError("gpu lost")
        return await self.engine.complete(request)

    def end_session(self, session: str) -> None:
        self.engine.end_session(session)


def test_the_end_is_told_however_it_comes() -> None:
    cases, diaries = draw(1), Diaries()
    (episode,) = play(cases, diaries.watch, engine=Broken(cases))
    assert episode.error == "gpu lost"
    (diary,) = diaries.by_session.values()
    assert diary.events[-1] == ("end", "", "gpu lost")
    assert diary.kinds().count("end") == 1


def show(cases: Sequence[PlayableCase], *, terminal: bool = False, **changed: Any) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=200, highlight=False)
    play(cases, live_view(console.print, with_keys=len(cases) > 1), **changed)
    return out.getvalue()


def test_the_live_view_reads_like_the_meeting() -> None:
    cases = draw(4)
    out = show(cases[:1])
    for part in ("opens; at the table: CTO, COO, Risk and Cost", "CTO speaks", "CTO reports: A "):
        assert part in out
    for part in ("ReconcileGPT decides for", "and funds ", "Cost votes: accept", "the meeting ends"):
        assert part in out
    assert "\x1b" not in out
    several = show(cases)
    for case in cases:
        lines = [line for line in several.splitlines() if line.startswith(case.key)]
        assert len(lines) >= 16
        assert lines[-1].endswith("the meeting ends")


def test_a_terminal_gets_colours() -> None:
    out = show(draw(1), terminal=True)
    assert "\x1b[" in out
    assert "ReconcileGPT" in out


@pytest.mark.parametrize("attack", ["[red]x[/red]", "\x1b[2Jx", "x\u202ey", "x" * 10_000, "a\nb", ""])
def test_model_text_cannot_steer_the_terminal(attack: str) -> None:
    cases = draw(1)
    engine = ScriptedEngine(CHAT, dict.fromkeys(TEAM, lambda transcript: attack))
    out = show(cases, engine=engine)
    assert out.count("reports nothing valid") == 4
    assert "decides nothing valid" in out
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert max(map(len, out.splitlines())) < 1000
    if attack.startswith("["):
        assert attack in out


def test_a_failure_is_shown() -> None:
    cases = draw(1)
    assert "broke off: gpu lost" in show(cases, engine=Broken(cases))

"""Watching episodes: events in order and complete, nothing without an observer, spans without truth."""

import asyncio
import io
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from episode_events import Diary
from rich.console import Console
from team_tables import CHAT, SAMPLING, SEATS, TEAM, oracle_engine

from evaluation.minutes.live_view import live_view
from roles.errors import InfrastructureError, UserError
from roles.registry import ROLES
from scenarios.base import ToolCall
from scenarios.team import PlanGame, PlayableCase, TeamScenario, generate
from simulator.agents.agent import Agent
from simulator.agents.scripted_policies import oracle_team
from simulator.engines.base import Completion, CompletionRequest
from simulator.engines.scripted import ScriptedEngine
from simulator.export.telemetry import trace_episodes, write_spans
from simulator.graph.runner import play_episodes
from simulator.observer import Watch, join_watches
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


def test_several_observers_hear_the_same() -> None:
    one, other = Diaries(), Diaries()
    play(draw(2), join_watches([one.watch, other.watch]))
    assert [diary.events for diary in one.by_session.values()] == [
        diary.events for diary in other.by_session.values()
    ]
    assert join_watches([]) is None


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


def test_spans_need_opentelemetry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("", ".sdk.trace", ".sdk.resources", ".trace"):
        monkeypatch.setitem(sys.modules, f"opentelemetry{name}", None)
    with pytest.raises(UserError, match=r"pip install 'emads\[otel\]'"), write_spans(tmp_path / "s.jsonl"):
        pass
    with pytest.raises(UserError, match="OpenTelemetry"):
        trace_episodes(object())
    assert list(tmp_path.iterdir()) == []


def test_a_simulation_does_not_import_opentelemetry() -> None:
    before = {name for name in sys.modules if name.startswith("opentelemetry")}
    play(draw(1), None)
    assert {name for name in sys.modules if name.startswith("opentelemetry")} == before


def read_spans(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def children(spans: list[dict[str, Any]], parent: dict[str, Any]) -> list[dict[str, Any]]:
    """In the order in which they began."""
    inside = [span for span in spans if span["parent_id"] == parent["context"]["span_id"]]
    return sorted(inside, key=lambda span: span["start_time"])


# github.com/open-telemetry/semantic-conventions-genai, model/gen-ai/spans.yaml: kind, and what is required or
# required where it is known
SPANS = {
    "invoke_workflow": ("INTERNAL", {"gen_ai.workflow.name"}),
    "invoke_agent": ("INTERNAL", {"gen_ai.provider.name", "gen_ai.agent.name", "gen_ai.conversation.id"}),
    "chat": ("CLIENT", {"gen_ai.provider.name", "gen_ai.request.model", "gen_ai.conversation.id"}),
    "execute_tool": ("INTERNAL", {"gen_ai.tool.name", "gen_ai.tool.type"}),
}
NAMED_BY = {
    "invoke_workflow": "gen_ai.workflow.name",
    "invoke_agent": "gen_ai.agent.name",
    "chat": "gen_ai.request.model",
    "execute_tool": "gen_ai.tool.name",
}


def test_spans_follow_the_conventions_of_generative_ai(tmp_path: Path) -> None:
    """Names are those of OpenTelemetry's own package; spans are named by the attribute that it says."""
    names = pytest.importorskip("opentelemetry.semconv._incubating.attributes.gen_ai_attributes")
    known = {value for name, value in vars(names).items() if name.startswith("GEN_AI_")}
    (case,), path = draw(1), tmp_path / "spans.jsonl"
    with write_spans(path) as watch:
        play([case], watch)
        observer = watch(case, "s")
        observer.on_tool("cto", format_tool_call("", ToolCall(name="measure", arguments={})), "latency 35")
        observer.on_tool("cto", "<tool_call>x</tool_call>", "error: no JSON")
        observer.on_end(None)
    spans = read_spans(path)
    operations = [span["attributes"]["gen_ai.operation.name"] for span in spans]
    assert set(operations) == set(SPANS) <= {one.value for one in names.GenAiOperationNameValues}
    for span, operation in zip(spans, operations, strict=True):
        kind, required = SPANS[operation]
        told = {name for name in span["attributes"] if not name.startswith("emads.")}
        assert span["kind"] == f"SpanKind.{kind}"
        assert required <= told <= known | {"error.type"}
        assert span["name"] == f"{operation} {span['attributes'][NAMED_BY[operation]]}"
        assert ("error.type" in told) == (span["status"]["status_code"] == "ERROR")
    failed = [span for span in spans if span["status"]["status_code"] == "ERROR"]
    assert [span["attributes"]["error.type"] for span in failed] == ["tool_error"]


def test_spans_tell_the_episode_and_no_truth(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.sdk")
    cases = [replace(case, truth={"sentinel": "TRUTH"}) for case in draw(3)]
    path = tmp_path / "new" / "spans.jsonl"
    with write_spans(path) as watch:
        episodes = play(cases, watch)
    spans = read_spans(path)
    roots = [span for span in spans if span["parent_id"] is None]
    assert len(roots) == 3
    for root, case, episode in zip(
        sorted(roots, key=lambda span: span["attributes"]["emads.scenario_key"]),
        cases,
        episodes,
        strict=True,
    ):
        assert root["attributes"]["emads.scenario_key"] == case.key
        events = [event["name"] for event in root["events"]]
        assert events == ["report"] * 4 + ["decision"] + ["vote"] * 4
        agents = children(spans, root)
        assert sorted(span["name"] for span in agents) == sorted(
            f"invoke_agent {role}" for role in episode.trajectories
        )
        for agent in agents:
            turns = episode.trajectories[agent["attributes"]["gen_ai.agent.name"]].turns
            chats = children(spans, agent)
            assert [span["name"] for span in chats] == [f"chat {turn.policy_version}" for turn in turns]
            used = [span["attributes"]["gen_ai.usage.input_tokens"] for span in chats]
            assert used[-1] == sum(len(t.context_ids) for t in turns) + sum(
                len(t.completion_ids) for t in turns[:-1]
            )
            assert agent["attributes"]["gen_ai.usage.input_tokens"] == sum(used)
            assert agent["attributes"]["gen_ai.usage.output_tokens"] == sum(
                len(t.completion_ids) for t in turns
            )
            assert agent["start_time"] <= chats[0]["start_time"] < chats[0]["end_time"]
            assert agent["end_time"] == chats[-1]["end_time"]
    text = path.read_text()
    assert "TRUTH" not in text
    for case in cases:
        assert not any(SHORT(case).write_report_brief(seat) in text for seat in case.seats)
    assert not any(word in text for word in ("reward", "verdict", "optimum", "Budget"))


def test_a_failed_episode_is_a_span_with_its_error(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.sdk")
    cases = draw(1)
    with write_spans(tmp_path / "spans.jsonl") as watch:
        play(cases, watch, engine=Broken(cases))
    (root,) = [span for span in read_spans(tmp_path / "spans.jsonl") if span["parent_id"] is None]
    assert root["attributes"]["error.type"] == "_OTHER"  # kinds are few; the status tells which
    assert root["status"] == {"status_code": "ERROR", "description": "gpu lost"}

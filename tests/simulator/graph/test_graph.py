"""The team graph: who speaks when, who reads what, and what the state holds."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, get_type_hints

import langsmith.utils
import pytest
from fast_loop import slow_except
from team_tables import CHAT, SAMPLING, SEATS, TEAM, WatchedEngine, draw_scenarios, oracle_engine

from roles.errors import InfrastructureError
from roles.registry import ROLES
from roles.team import RECONCILER
from scenarios.team import FlagGame, TeamScenario, decision_brief, parse_report
from simulator.engines.base import Completion, CompletionRequest
from simulator.engines.scripted import ScriptedEngine
from simulator.graph.concurrency import run_pool
from simulator.graph.context import EpisodeContext, LiveAgents
from simulator.graph.nodes import choose_reporters
from simulator.graph.runner import play_episodes
from simulator.graph.seating import Seating, make_context
from simulator.graph.state import ReconcilerView, TeamState, open_case
from simulator.graph.team_graph import graph_mermaid, play_graph, stream_states, team_graph

REPORT = '{"pick": "A", "flag": 1, "veto": []}'
DECISION = '{"option": "A", "escalate": false}'
ACCEPT, OBJECT = '{"vote": "accept"}', '{"vote": "object"}'


@dataclass
class Scripted:
    """A speaker that reads out its lines and notes what it heard."""

    name: str
    lines: list[str]
    heard: list[tuple[str, str]]  # (name, text), shared by the table
    num_messages: int = 0

    async def answer(self, message: str) -> str:
        self.num_messages += 1
        self.heard.append((self.name, message))
        await asyncio.sleep(0)
        return self.lines.pop(0)


def play(
    scenario: TeamScenario, lines: dict[str, list[str]], rounds: int = 1
) -> tuple[TeamState, list[tuple[str, str]]]:
    """Last state and everything heard, when each role reads out its lines."""
    heard: list[tuple[str, str]] = []
    agents = {name: Scripted(name, list(says), heard) for name, says in lines.items()}
    context = EpisodeContext(agents=LiveAgents(agents), game=FlagGame.of(scenario))
    return asyncio.run(play_graph(open_case(scenario, rounds=rounds), context)), heard


def table(**changed: list[str]) -> dict[str, list[str]]:
    """Lines of four specialists who report and accept, and of a reconciler; some changed."""
    return {**{role: [REPORT, ACCEPT] for role in SEATS}, RECONCILER: [DECISION], **changed}


def test_reports_then_decision_then_votes() -> None:
    scenario = draw_scenarios(1)[0]
    final, heard = play(scenario, table())
    assert sorted(heard[:4]) == sorted((role, scenario.seats[role].brief) for role in SEATS)
    assert heard[4] == (
        RECONCILER,
        "Options A B C. Vetoed none.\ncto A 1\ncoo A 1\nrisk A 1\ncost A 1",
    )
    assert sorted(heard[5:]) == sorted((role, "Decision A. Vote.") for role in SEATS)
    assert final["round"] == 1
    assert final["votes"] == {role: {"text": ACCEPT, "parsed": "accept"} for role in SEATS}
    assert list(final["votes"]) == list(SEATS)


@pytest.mark.parametrize("turn", [0, 1], ids=["reports", "votes"])
def test_specialists_are_in_flight_together(turn: int) -> None:
    """An engine that answers nobody before all four have asked: one at a time would never end."""
    scenario = draw_scenarios(1)[0]

    class Barrier:
        def __init__(self) -> None:
            self.inner = oracle_engine([scenario])
            self.calls: dict[str, int] = {}
            self.gate = asyncio.Barrier(4)

        async def complete(self, request: CompletionRequest) -> Completion:
            calls = self.calls[request.session] = self.calls.get(request.session, -1) + 1
            if request.policy != RECONCILER and calls == turn:
                await self.gate.wait()
            return await self.inner.complete(request)

        def end_session(self, session: str) -> None:
            pass

    async def run() -> None:
        await asyncio.wait_for(play_episodes([scenario], TEAM, Barrier(), CHAT, SAMPLING), timeout=10)

    asyncio.run(run())


def test_reconciler_reads_the_parsed_reports_and_nothing_else() -> None:
    scenarios = draw_scenarios(30)
    engine = WatchedEngine(oracle_engine(scenarios))
    episodes = asyncio.run(play_episodes(scenarios, TEAM, engine, CHAT, SAMPLING, concurrency=1))
    for scenario, episode, prompt in zip(scenarios, episodes, engine.prompts(RECONCILER), strict=True):
        reports = {role: parse_report(scenario, episode.reports[role]) for role in SEATS}
        brief = decision_brief(scenario.options, reports)
        assert prompt == CHAT.decode(CHAT.open(ROLES[RECONCILER], brief, with_tools=False))
        assert "Stakes" not in prompt
        assert "Limit" not in prompt
    assert "briefs" not in get_type_hints(ReconcilerView)


def test_specialists_never_read_each_other() -> None:
    scenarios = draw_scenarios(20)
    engine = WatchedEngine(oracle_engine(scenarios))
    asyncio.run(play_episodes(scenarios, TEAM, engine, CHAT, SAMPLING, concurrency=1))
    for role in SEATS:
        for index, prompt in enumerate(engine.prompts(role)):
            assert scenarios[index // 2].seats[role].brief in prompt
            seats = scenarios[index // 2].seats.values()
            assert sum(seat.brief in prompt for seat in seats) == 1
            assert "Options" not in prompt


def test_malformed_report_is_no_report() -> None:
    scenario = draw_scenarios(1)[0]
    unknown_option = '{"pick": "Z", "flag": 1, "veto": []}'
    final, heard = play(scenario, table(coo=["B, surely", ACCEPT], risk=[unknown_option, ACCEPT]))
    assert heard[4][1] == "Options A B C. Vetoed none.\ncto A 1\ncoo no report\nrisk no report\ncost A 1"
    assert final["reports"]["coo"] == {"text": "B, surely", "parsed": None}


def test_malformed_decision_stays_as_text() -> None:
    final, heard = play(draw_scenarios(1)[0], table(reconcile=["A or B"]))
    assert final["decision"] == {"text": "A or B", "parsed": None}
    assert {text for _, text in heard[5:]} == {"No decision. Vote."}


def test_objections_go_back_once_more() -> None:
    second = '{"option": "B", "escalate": false}'
    lines = table(
        coo=[REPORT, OBJECT, ACCEPT],
        cost=[REPORT, OBJECT, OBJECT],
        cto=[REPORT, ACCEPT, ACCEPT],
        risk=[REPORT, "hm", ACCEPT],
        reconcile=[DECISION, second],
    )
    final, heard = play(draw_scenarios(1)[0], lines, rounds=2)
    assert heard[9] == (RECONCILER, "Objections coo cost. Decide again.")
    assert sorted(heard[10:]) == sorted((role, "Decision B. Vote.") for role in SEATS)
    assert final["decision"] is not None
    assert final["decision"]["text"] == second
    assert final["votes"]["cost"]["parsed"] == "object"
    assert final["round"] == 2


@pytest.mark.parametrize(
    ("rounds", "vote", "drafts"), [(0, OBJECT, 1), (1, OBJECT, 1), (2, ACCEPT, 1), (3, OBJECT, 3)]
)
def test_number_of_drafts(rounds: int, vote: str, drafts: int) -> None:
    lines = {role: [REPORT, *[vote] * 3] for role in SEATS} | {RECONCILER: [DECISION] * 3}
    final, heard = play(draw_scenarios(1)[0], lines, rounds=rounds)
    assert final["round"] == drafts
    assert sum(name == RECONCILER for name, _ in heard) == drafts
    assert sum(text.endswith("Vote.") for _, text in heard) == 4 * min(rounds, drafts)


def test_seats_come_from_the_case() -> None:
    """A fifth seat is dispatched, drawn and asked to vote without a change of the graph."""
    scenario = draw_scenarios(1)[0]
    seats = {**scenario.seats, "legal": replace(scenario.seats["cto"], brief="Legal seat.")}
    final, heard = play(replace(scenario, seats=seats), table(legal=[REPORT, OBJECT]))
    assert ("legal", "Legal seat.") in heard[:5]
    assert final["votes"]["legal"]["parsed"] == "object"
    assert "legal(legal)" in graph_mermaid((*SEATS, "legal"))


def test_dispatch_skips_reports_that_are_given() -> None:
    case = open_case(draw_scenarios(1)[0], rounds=1)
    assert asyncio.run(choose_reporters(case)) == list(SEATS)
    case["reports"]["coo"] = {"text": REPORT, "parsed": None}
    assert asyncio.run(choose_reporters(case)) == ["cto", "risk", "cost"]
    case["reports"].update({role: {"text": REPORT, "parsed": None} for role in SEATS})
    assert asyncio.run(choose_reporters(case)) == ["reconcile"]


def test_objection_brief_wording() -> None:
    assert FlagGame.of(draw_scenarios(1)[0]).write_objection_brief(["cto"]) == "Objections cto. Decide again."


@pytest.mark.parametrize("error", [InfrastructureError("gpu lost"), KeyError("bug")])
def test_whatever_a_node_raises_comes_out_as_it_is(error: Exception) -> None:
    scenario = draw_scenarios(1)[0]

    class Failing(Scripted):
        async def answer(self, message: str) -> str:
            raise error

    heard: list[tuple[str, str]] = []
    agents: dict[str, Scripted] = {name: Scripted(name, says, heard) for name, says in table().items()}
    agents["risk"] = Failing("risk", [], heard)
    context = EpisodeContext(agents=LiveAgents(agents), game=FlagGame.of(scenario))
    with pytest.raises(type(error)) as raised:
        asyncio.run(play_graph(open_case(scenario, rounds=1), context))
    assert raised.value is error


def test_a_seat_without_agent_is_refused() -> None:
    lines = table()
    del lines["coo"]
    with pytest.raises(ValueError, match="coo"):
        play(draw_scenarios(1)[0], lines)


def test_graph_is_compiled_once_per_set_of_seats() -> None:
    assert team_graph(SEATS) is team_graph(tuple(SEATS))


def test_play_uses_no_threads() -> None:
    """LangGraph would run a plain function of ours in a thread: slower, and in no fixed order."""

    class NoThreads(ThreadPoolExecutor):
        def submit(self, *_: Any, **__: Any) -> Any:
            raise AssertionError("work was given to a thread")

    async def run() -> None:
        asyncio.get_running_loop().set_default_executor(NoThreads(max_workers=1))
        scenarios = draw_scenarios(2)
        await play_episodes(scenarios, TEAM, oracle_engine(scenarios), CHAT, SAMPLING, rounds=2)

    asyncio.run(run())


def test_mermaid_shows_the_flow() -> None:
    picture = graph_mermaid()
    for role in SEATS:
        assert f"intake -.-> {role};" in picture
        assert f"{role} --> reconcile;" in picture
    assert "reconcile --> vote;" in picture
    assert "vote -.-> reconcile;" in picture
    assert "vote -.-> __end__;" in picture


def forget_environment() -> None:
    """Tracing settings are read from the environment once and cached."""
    langsmith.utils.get_env_var.cache_clear()  # type: ignore[attr-defined]


def test_environment_cannot_switch_tracing_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGSMITH_TRACING", "true")
    monkeypatch.setenv("LANGSMITH_ENDPOINT", "http://127.0.0.1:9")  # nobody there, should this ever fail
    forget_environment()
    seen: list[Any] = []

    class Nosy(Scripted):
        async def answer(self, message: str) -> str:
            seen.append(langsmith.utils.tracing_is_enabled())
            return await super().answer(message)

    try:
        assert langsmith.utils.tracing_is_enabled() is True
        heard: list[tuple[str, str]] = []
        agents = {name: Nosy(name, says, heard) for name, says in table().items()}
        scenario = draw_scenarios(1)[0]
        context = EpisodeContext(agents=LiveAgents(agents), game=FlagGame.of(scenario))
        asyncio.run(play_graph(open_case(scenario, rounds=1), context))
    finally:
        forget_environment()
    assert seen == [False] * 9


class Untouchable(dict[str, Any]):
    """Truth that nobody may look at."""

    def _touch(self, *_: Any) -> Any:
        raise AssertionError("truth was read during play")

    __getitem__ = __iter__ = __len__ = __contains__ = get = keys = values = items = _touch


@pytest.mark.parametrize("count", slow_except((50, 250), 50))
def test_truth_and_facts_stay_out_of_prompts_and_state(count: int) -> None:
    """Four episodes per scenario with sentinels in truth and facts; every prompt and state is searched."""
    scenarios = draw_scenarios(count)
    marked = [
        replace(
            scenario,
            truth={"TRUTH-SENTINEL": scenario.truth},
            seats={
                role: replace(seat, facts={**seat.facts, "note": "FACT-SENTINEL"})
                for role, seat in scenario.seats.items()
            },
        )
        for scenario in scenarios
    ]
    engine = WatchedEngine(oracle_engine(scenarios))
    states: list[str] = []

    async def watch(scenario: TeamScenario, session: str) -> None:
        seating = Seating(
            team=TEAM, engine=engine, chat=CHAT, sampling=SAMPLING, stream="", max_turns=4, roles=ROLES
        )
        context = make_context(scenario, seating.make_agents(scenario, session))
        async for state in stream_states(open_case(scenario, rounds=2), context):
            states.append(json.dumps(state, allow_nan=False))
            assert json.loads(states[-1]) == state
        seating.end_sessions(scenario, session)

    async def watch_all() -> None:
        jobs = [
            lambda scenario=scenario, session=f"{repeat}/{scenario.key}": watch(scenario, session)
            for scenario in marked
            for repeat in range(4)
        ]
        await run_pool(jobs, concurrency=32)

    asyncio.run(watch_all())
    assert len(states) >= 5 * 4 * count
    seen = "\n".join([*states, *(prompt for role in TEAM for prompt in engine.prompts(role))])
    assert "SENTINEL" not in seen
    assert not any(f'"{key}"' in seen for key in (*scenarios[0].truth, *scenarios[0].seats["cto"].facts))
    assert "Stakes" in seen


def test_play_never_reads_the_truth() -> None:
    scenarios = draw_scenarios(10)
    blind = [replace(scenario, truth=Untouchable()) for scenario in scenarios]
    engine: ScriptedEngine = oracle_engine(scenarios)
    with pytest.raises(AssertionError, match="truth was read"):
        bool(blind[0].truth)
    asyncio.run(play_episodes(blind, TEAM, engine, CHAT, SAMPLING))

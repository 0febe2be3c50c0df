"""The team graph: who speaks when, who reads what, and what the state holds."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, get_type_hints

import langsmith.utils
import pytest
from fast_loop import slow_except
from northbank import seat_northbank, write_report
from team_tables import CHAT, SAMPLING, SEATS, TEAM, WatchedEngine, draw_scenarios, oracle_engine
from trial_counts import num_trials

from roles.errors import InfrastructureError
from roles.registry import ROLES
from roles.team import RECONCILER
from scenarios.team import PlanGame, Style, TeamScenario, with_seat
from simulator.engines.base import Completion, CompletionRequest
from simulator.game import Reports
from simulator.graph.concurrency import run_pool
from simulator.graph.nodes import choose_reporters
from simulator.graph.runner import play_episodes
from simulator.graph.seating import Seating, make_context
from simulator.graph.state import EpisodeContext, LiveAgents, ReconcilerView, TeamState, open_case
from simulator.graph.team_graph import open_team, play_graph, stream_states, team_graph

NORTHBANK = seat_northbank()
SHORT = PlanGame(NORTHBANK, "short")
REPORTS = {seat: write_report(seat) for seat in SEATS}
DECISION = '{"option": "A", "fund": ["cto", "risk"], "escalate": false}'
ACCEPT, OBJECT = '{"vote": "accept"}', '{"vote": "object", "reason": "too dear"}'
TABLE = """\
A 30: cto 15 22 need, coo 7 10, risk 8 19, cost 10 17
B 26: cto 8 21, coo 14 25 need, risk 13 20, cost 5 8
Budget 40."""


@dataclass
class Scripted:
    """A speaker that reads out its lines and notes what it heard."""

    name: str
    lines: list[str]
    heard: list[tuple[str, str]]  # (name, text), shared by the table
    num_messages: int = 0
    seen: Reports = field(default_factory=dict)

    async def answer(self, message: str) -> str:
        self.num_messages += 1
        self.heard.append((self.name, message))
        await asyncio.sleep(0)
        return self.lines.pop(0)

    def see(self, reports: Reports) -> None:
        self.seen = reports


def play(
    lines: dict[str, list[str]], rounds: int = 1, game: PlanGame = SHORT
) -> tuple[TeamState, list[tuple[str, str]]]:
    """Last state and everything heard, when each role reads out its lines."""
    heard: list[tuple[str, str]] = []
    agents = {name: Scripted(name, list(says), heard) for name, says in lines.items()}
    context = EpisodeContext(agents=LiveAgents(agents), game=game)
    return asyncio.run(play_graph(open_case(game.case, game, rounds=rounds), context)), heard


def table(**changed: list[str]) -> dict[str, list[str]]:
    """Lines of four specialists who report and accept, and of a reconciler; some changed."""
    return {**{seat: [REPORTS[seat], ACCEPT] for seat in SEATS}, RECONCILER: [DECISION], **changed}


def test_reports_then_decision_then_votes() -> None:
    final, heard = play(table())
    assert sorted(heard[:4]) == sorted((seat, SHORT.write_report_brief(seat)) for seat in SEATS)
    assert heard[4][0] == RECONCILER
    assert heard[4][1].startswith(TABLE)
    assert sorted(heard[5:]) == sorted(
        (seat, f"Decision A {'with' if seat in ('cto', 'risk') else 'without'} your part. Vote.")
        for seat in SEATS
    )
    assert final["round"] == 1
    assert final["votes"] == {
        seat: {"text": ACCEPT, "parsed": {"vote": "accept", "reason": ""}} for seat in SEATS
    }
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
        play = play_episodes([scenario], TEAM, Barrier(), CHAT, SAMPLING, make_game=short_game)
        await asyncio.wait_for(play, timeout=10)

    asyncio.run(run())


short_game = partial(PlanGame, style="short")


@pytest.mark.parametrize("style", ["full", "short"])
def test_reconciler_reads_the_checked_reports_and_nothing_else(style: Style) -> None:
    scenarios = draw_scenarios(10)
    engine = WatchedEngine(oracle_engine(scenarios))
    make_game = partial(PlanGame, style=style)
    episodes = asyncio.run(
        play_episodes(scenarios, TEAM, engine, CHAT, SAMPLING, concurrency=1, make_game=make_game)
    )
    for scenario, episode, prompt in zip(scenarios, episodes, engine.prompts(RECONCILER), strict=True):
        game = make_game(scenario)
        reports = {seat: game.read_report(seat, text) for seat, text in episode.reports.items()}
        brief = game.write_decision_brief(reports)
        role = game.prompt_role(RECONCILER)
        assert prompt == CHAT.decode(CHAT.open(role, brief, with_tools=bool(role.tools)))
        assert not any(game.write_report_brief(seat).splitlines()[-2] in prompt for seat in SEATS)
    assert "briefs" not in get_type_hints(ReconcilerView)


def test_specialists_never_read_each_other() -> None:
    scenarios = draw_scenarios(10)
    engine = WatchedEngine(oracle_engine(scenarios))
    asyncio.run(play_episodes(scenarios, TEAM, engine, CHAT, SAMPLING, concurrency=1))
    for seat in SEATS:
        for prompt in engine.prompts(seat):
            (scenario,) = [one for one in scenarios if PlanGame(one).write_report_brief(seat) in prompt]
            for other in set(SEATS) - {seat}:
                own = PlanGame(scenario).write_report_brief(other).splitlines()[-2]
                assert own.startswith("Upgrades on option")
                assert own not in prompt
            assert "gave no report" not in prompt


@pytest.mark.parametrize("text", ["B, surely", '{"offers": "all"}', "{" * 2000, ""])
def test_malformed_report_is_no_report(text: str) -> None:
    final, heard = play(table(coo=[text, ACCEPT]))
    assert heard[4][1].splitlines()[:3] == [
        "A 30: cto 15 22 need, risk 8 19, cost 10 17",
        "B 26: cto 8 21, risk 13 20, cost 5 8",
        "coo no report",
    ]
    assert final["reports"]["coo"] == {"text": text, "parsed": None}


def test_false_claims_are_struck_out_before_reconcile_reads_them() -> None:
    report = json.loads(REPORTS["risk"])
    report["offers"][0]["worth"] = 90
    report["veto"] = ["B"]
    final, heard = play(table(risk=[json.dumps(report), ACCEPT]))
    assert heard[4][1].splitlines()[0] == "A 30: cto 15 22 need, coo 7 10, cost 10 17"
    assert "veto" not in heard[4][1]
    assert len(final["reports"]["risk"]["parsed"]["false_claims"]) == 2


@pytest.mark.parametrize("text", ["A or B", '{"option": "A", "fund": ["legal"], "escalate": false}'])
def test_malformed_decision_stays_as_text(text: str) -> None:
    """Also one that funds what nobody offers."""
    final, heard = play(table(reconcile=[text]))
    assert final["decision"] == {"text": text, "parsed": None}
    assert {text for _, text in heard[5:]} == {"No decision. Vote."}


def test_objections_go_back_once_more() -> None:
    second = '{"option": "B", "fund": ["coo"], "escalate": false}'
    lines = table(
        coo=[REPORTS["coo"], OBJECT, ACCEPT],
        cost=[REPORTS["cost"], OBJECT, OBJECT],
        cto=[REPORTS["cto"], ACCEPT, ACCEPT],
        risk=[REPORTS["risk"], "hm", ACCEPT],
        reconcile=[DECISION, second],
    )
    final, heard = play(lines, rounds=2)
    assert heard[9] == (RECONCILER, "Objections coo cost. Decide again.")
    assert ("coo", "Decision B with your part. Vote.") in heard[10:]
    assert final["decision"] is not None
    assert final["decision"]["text"] == second
    assert final["votes"]["cost"]["parsed"]["vote"] == "object"
    assert final["round"] == 2


@pytest.mark.parametrize(
    ("rounds", "vote", "drafts"), [(0, OBJECT, 1), (1, OBJECT, 1), (2, ACCEPT, 1), (3, OBJECT, 3)]
)
def test_number_of_drafts(rounds: int, vote: str, drafts: int) -> None:
    lines = {seat: [REPORTS[seat], *[vote] * 3] for seat in SEATS} | {RECONCILER: [DECISION] * 3}
    final, heard = play(lines, rounds=rounds)
    assert final["round"] == drafts
    assert sum(name == RECONCILER for name, _ in heard) == drafts
    assert sum(text.endswith("Vote.") for _, text in heard) == 4 * min(rounds, drafts)


ASK = '{"ask": {"seat": "cto", "option": "A", "cost_at_most": 15}}'
DEARER = '{"offer": {"option": "A", "part": ["spare gateway", "cache"], "cost": 15, "worth": 22}}'
ASKING = replace(SHORT, questions=1)
LEAN_CTO = write_report("cto", "lean")  # A: the spare gateway alone, 9 -> 14


def test_a_question_goes_to_one_seat_in_its_own_transcript() -> None:
    both = '{"option": "A", "fund": ["cto2", "risk"], "escalate": false}'
    final, heard = play(table(cto=[LEAN_CTO, DEARER, ACCEPT], reconcile=[ASK, both]), game=ASKING)
    assert [name for name, _ in heard[4:7]] == [RECONCILER, "cto", RECONCILER]
    assert heard[5][1] == "Offer A at most 15."
    assert "A 30: cto 9 14 need, cto2 15 22 need, coo 7 10" in heard[6][1]
    assert "cto2" not in heard[4][1]
    assert ("cto", "Decision A with your part. Vote.") in heard[7:]
    assert final["decision"] is not None
    assert final["decision"]["parsed"]["fund"] == ["cto2", "risk"]
    (answered,) = final["answered"]
    assert (answered["ask"]["text"], answered["reply"]["text"]) == (ASK, DEARER)
    assert final["reports"]["cto"]["text"] == LEAN_CTO
    assert final["round"] == 1


@pytest.mark.parametrize(
    "reply",
    [
        "no",
        '{"offer": null}',
        DEARER.replace("22", "23"),  # false
        DEARER.replace('"A"', '"B"'),
        '{"offer": {"option": "A", "part": ["spare gateway"], "cost": 9, "worth": 14}}',  # stands already
    ],
)
def test_a_reply_that_does_not_hold_adds_nothing(reply: str) -> None:
    final, heard = play(table(cto=[LEAN_CTO, reply, ACCEPT], reconcile=[ASK, DECISION]), game=ASKING)
    assert heard[6][1] == heard[4][1]
    assert len(final["reports"]["cto"]["parsed"]["offers"]) == 2
    assert final["answered"][0]["reply"]["parsed"] is None


@pytest.mark.parametrize(
    "ask", [ASK.replace("cto", "legal"), ASK.replace('"A"', '"C"'), ASK.replace("15", "-1")]
)
def test_a_question_to_nobody_is_a_malformed_decision(ask: str) -> None:
    final, heard = play(table(reconcile=[ask]), game=ASKING)
    assert final["decision"] == {"text": ask, "parsed": None}
    assert final["answered"] == []
    assert heard[5][1] == "No decision. Vote."


def test_one_question_more_than_allowed_is_a_malformed_decision() -> None:
    final, _ = play(table(cto=[LEAN_CTO, DEARER, ACCEPT], reconcile=[ASK, ASK]), game=ASKING)
    assert final["decision"] == {"text": ASK, "parsed": None}
    final, _ = play(table(reconcile=[ASK]))
    assert final["decision"] == {"text": ASK, "parsed": None}


def test_a_question_may_follow_objections_and_no_vote_is_lost() -> None:
    lines = table(
        cto=[LEAN_CTO, ACCEPT, DEARER, ACCEPT],
        cost=[REPORTS["cost"], OBJECT, ACCEPT],
        coo=[REPORTS["coo"], ACCEPT, ACCEPT],
        risk=[REPORTS["risk"], ACCEPT, ACCEPT],
        reconcile=[DECISION, ASK, DECISION],
    )
    final, heard = play(lines, rounds=2, game=ASKING)
    assert [text for name, text in heard if name == RECONCILER][1] == "Objections cost. Decide again."
    assert final["round"] == 2
    assert {vote["parsed"]["vote"] for vote in final["votes"].values()} == {"accept"}


def test_only_reconcile_is_shown_all_reports() -> None:
    heard: list[tuple[str, str]] = []
    agents = {name: Scripted(name, list(says), heard) for name, says in table().items()}
    context = EpisodeContext(agents=LiveAgents(agents), game=SHORT)
    asyncio.run(play_graph(open_case(NORTHBANK, SHORT, rounds=0), context))
    assert set(agents[RECONCILER].seen) == set(SEATS)
    assert not any(agents[seat].seen for seat in SEATS)


def test_seats_come_from_the_case() -> None:
    """A fifth seat is dispatched, drawn and asked to vote without a change of the graph."""
    facts = {"upgrades": {"A": {"escrow": {"cost": 4, "worth": 9}}}, "needs": {"A": ["escrow"]}}
    game = PlanGame(with_seat(NORTHBANK, "legal", facts), "short")
    offer = {"option": "A", "part": ["escrow"], "cost": 4, "worth": 9}
    report = json.dumps({"offers": [offer], "needs": ["A"], "veto": []})
    final, heard = play(table(legal=[report, OBJECT]), game=game)
    assert ("legal", game.write_report_brief("legal")) in heard[:5]
    assert "legal 4 9 need" in heard[5][1]
    assert final["votes"]["legal"]["parsed"]["vote"] == "object"
    assert "legal(legal)" in team_graph((*SEATS, "legal")).get_graph().draw_mermaid()


def test_dispatch_skips_reports_that_are_given() -> None:
    case = open_case(NORTHBANK, SHORT, rounds=1)
    assert asyncio.run(choose_reporters(case)) == list(SEATS)
    case["reports"]["coo"] = {"text": "", "parsed": None}
    assert asyncio.run(choose_reporters(case)) == ["cto", "risk", "cost"]
    case["reports"].update({seat: {"text": "", "parsed": None} for seat in SEATS})
    assert asyncio.run(choose_reporters(case)) == ["reconcile"]


@pytest.mark.parametrize("error", [InfrastructureError("gpu lost"), KeyError("bug")])
def test_whatever_a_node_raises_comes_out_as_it_is(error: Exception) -> None:
    class Failing(Scripted):
        async def answer(self, message: str) -> str:
            raise error

    heard: list[tuple[str, str]] = []
    agents: dict[str, Scripted] = {name: Scripted(name, says, heard) for name, says in table().items()}
    agents["risk"] = Failing("risk", [], heard)
    context = EpisodeContext(agents=LiveAgents(agents), game=SHORT)
    with pytest.raises(type(error)) as raised:
        asyncio.run(play_graph(open_case(NORTHBANK, SHORT, rounds=1), context))
    assert raised.value is error


def test_a_seat_without_agent_is_refused() -> None:
    lines = table()
    del lines["coo"]
    with pytest.raises(ValueError, match="coo"):
        play(lines)


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
    picture = open_team().get_graph().draw_mermaid()
    for seat in SEATS:
        assert f"intake -.-> {seat};" in picture
        assert f"{seat} --> reconcile;" in picture
    assert "reconcile -.-> answer;" in picture
    assert "answer --> reconcile;" in picture
    assert "reconcile -.-> vote;" in picture
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
        context = EpisodeContext(agents=LiveAgents(agents), game=SHORT)
        asyncio.run(play_graph(open_case(NORTHBANK, SHORT, rounds=1), context))
    finally:
        forget_environment()
    assert seen == [False] * 9


class Untouchable(dict[str, Any]):
    """Truth that nobody may look at."""

    def _touch(self, *_: Any) -> Any:
        raise AssertionError("truth was read during play")

    __getitem__ = __iter__ = __len__ = __contains__ = get = keys = values = items = _touch


@pytest.mark.parametrize("count", slow_except((20, num_trials(60, 150)), 20))
@pytest.mark.parametrize("style", ["full", "short"])
def test_truth_stays_out_of_prompts_and_facts_out_of_the_state(style: Style, count: int) -> None:
    """Two episodes per scenario with sentinels in truth and facts; every prompt and state is searched."""
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
            team=TEAM, engine=engine, chat=CHAT, sampling=SAMPLING, stream="", max_turns=9, roles=ROLES
        )
        game = PlanGame(scenario, style)
        context = make_context(game, seating.make_agents(scenario, game, session))
        async for state in stream_states(seating.open_case(scenario, game, rounds=2), context):
            states.append(json.dumps(state, allow_nan=False))
            assert json.loads(states[-1]) == state
        seating.end_sessions(scenario, session)

    async def watch_all() -> None:
        jobs = [
            lambda scenario=scenario, session=f"{repeat}/{scenario.key}": watch(scenario, session)
            for scenario in marked
            for repeat in range(2)
        ]
        await run_pool(jobs, concurrency=32)

    asyncio.run(watch_all())
    assert len(states) >= 5 * 2 * count
    seen = "\n".join([*states, *(prompt for role in TEAM for prompt in engine.prompts(role))])
    assert "SENTINEL" not in seen
    assert not any(f'"{key}"' in seen for key in ("optimum", "blind", "structures", "keeps_limit"))
    assert "Budget" in seen


def test_play_never_reads_the_truth() -> None:
    scenarios = draw_scenarios(10)
    blind = [replace(scenario, truth=Untouchable()) for scenario in scenarios]
    engine = oracle_engine(scenarios)
    with pytest.raises(AssertionError, match="truth was read"):
        bool(blind[0].truth)
    asyncio.run(play_episodes(blind, TEAM, engine, CHAT, SAMPLING))

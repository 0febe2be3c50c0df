"""Kinds of agents and their limits: each limit ends the work under its own name, code runs in the sandbox."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import pytest
from sandboxes import run_or_be_refused, take_away
from team_tables import CHAT, SAMPLING, SEATS, TEAM, draw_scenarios

from roles.errors import UserError
from roles.limits import MAX_OBSERVATION_CHARS, MAX_SEAT_CALLS
from roles.registry import ROLES
from scenarios.base import ToolCall, ToolError
from scenarios.team import PlanGame
from simulator.agents.agent import Agent, SeatTools, parse_code, run_code
from simulator.agents.agent_kinds import AgentKind, AgentLimits, introduce, read_kinds, read_limits
from simulator.agents.dialogue import read_exchanges
from simulator.agents.scripted_policies import oracle_team
from simulator.engines.base import Sampling
from simulator.engines.scripted import ScriptedEngine
from simulator.export.atif import episode_to_atif
from simulator.graph.runner import play_episodes
from simulator.graph.seating import list_prompt_roles
from simulator.reading import read_episode
from simulator.records import EndReason, Episode, Trajectory
from simulator.tool_calls import BadToolCallError, format_tool_call

CALL = format_tool_call("", ToolCall(name="add", arguments={}))


ANSWER = '{"offers": [], "needs": [], "veto": []}'


def block(source: str) -> str:
    return f"Let me compute.\n```python\n{source}\n```"


class Tool:
    """Counts its calls; fails from a given one on."""

    def __init__(self, fails_from: int = 99) -> None:
        self.num_calls, self.fails_from = 0, fails_from

    def __call__(self, call: ToolCall) -> str:
        self.num_calls += 1
        if self.num_calls >= self.fails_from:
            raise ToolError("no")
        return f"sum {self.num_calls}"


def play(
    turns: Sequence[str], *, kind: AgentKind | None = None, tool: Tool | None = None, **limits: Any
) -> Trajectory:
    """An agent that says these turns in order, then the last one again."""
    spoken = iter(turns)
    last = turns[-1]
    engine = ScriptedEngine(CHAT, {"cto": lambda transcript: next(spoken, last)})
    sampling = Sampling(max_completion_tokens=limits.pop("turn_tokens", 300))
    agent = Agent(
        role=ROLES["cto"],
        policy="cto",
        engine=engine,
        chat=CHAT,
        sampling=sampling,
        session="s",
        call_tool=tool,
        kind=kind,
        max_turns=limits.pop("max_turns", 10),
        limits=AgentLimits(**{name.removeprefix("max_"): most for name, most in limits.items()}),
    )
    asyncio.run(agent.answer("Brief."))
    return agent.trajectory()


OPENING = len(CHAT.open(ROLES["cto"], "Brief.", with_tools=True))


@pytest.mark.parametrize(
    ("turns", "limits", "ended_by", "num_turns", "num_calls"),
    [
        ([CALL, ANSWER], {}, "answer", 2, 1),
        ([CALL], {"max_turns": 3}, "turns", 3, 3),
        (["x" * 40], {"turn_tokens": 20}, "turn_tokens", 1, 0),
        (["x" * 40], {"max_total_tokens": OPENING + 10}, "total_tokens", 1, 0),
        ([CALL], {"max_total_tokens": OPENING + len(CALL) + 6}, "total_tokens", 1, 1),
        ([CALL], {"max_tool_calls": 2}, "tool_calls", 3, 3),
        ([CALL, CALL, ANSWER], {"max_tool_calls": 2}, "answer", 3, 2),
        ([CALL], {"max_failed_calls": 2}, "failed_calls", 4, 4),
    ],
)
def test_each_limit_ends_the_work_under_its_own_name(
    turns: list[str], limits: dict[str, Any], ended_by: str, num_turns: int, num_calls: int
) -> None:
    tool = Tool(fails_from=3)
    played = play(turns, tool=tool, **limits)
    assert played.ended_by == ended_by
    assert played.truncated == (ended_by != "answer")
    assert (len(played.turns), played.num_tool_calls) == (num_turns, num_calls)
    assert played.final_text == (ANSWER if ended_by == "answer" else "")
    assert tool.num_calls <= limits.get("max_tool_calls", 99)
    most = limits.get("max_total_tokens")
    assert most is None or len(played.token_ids) <= most


def test_only_the_first_message_opens_a_transcript() -> None:
    """Also where a limit ended the work before anything was written."""
    vote = CHAT.ask("Vote.")
    agent = Agent(
        role=ROLES["cto"],
        policy="cto",
        engine=ScriptedEngine(CHAT, {"cto": lambda transcript: ANSWER}),
        chat=CHAT,
        sampling=SAMPLING,
        session="s",
        limits=AgentLimits(total_tokens=len(vote) + 10),
    )
    assert asyncio.run(agent.answer("A brief that does not fit. " * 10)) == ""
    asyncio.run(agent.answer("Vote."))
    assert [turn.context_ids for turn in agent.turns] == [vote]


def test_the_names_of_limits_are_those_of_ends() -> None:
    assert set(AgentLimits.__dataclass_fields__) == set(get_args(EndReason)) - {"answer"}


def test_a_chat_agent_uses_no_tool() -> None:
    tool = Tool()
    played = play([CALL], kind="chat", tool=tool)
    assert (played.final_text, tool.num_calls, played.num_tool_calls) == (CALL, 0, 0)


def test_a_react_agent_runs_no_code() -> None:
    played = play([block("print(1)")], kind="react", tool=Tool())
    assert (played.final_text, played.num_tool_calls) == (block("print(1)"), 0)


SECOND = format_tool_call("", ToolCall(name="add", arguments={"to": 2}))


def test_several_calls_in_a_turn_are_made_in_order_and_read_together() -> None:
    tool = Tool()
    played = play([f"Both.{CALL}\n{SECOND}", ANSWER], tool=tool)
    assert (played.num_tool_calls, played.num_valid_tool_calls, len(played.turns)) == (2, 2, 2)
    assert CHAT.decode(played.turns[1].context_ids) == "<|tool|>sum 1<|end|><|tool|>sum 2<|end|><|assistant|>"
    (exchange,) = read_exchanges(played, CHAT, ROLES["cto"])
    assert exchange.tool_calls == ((f"Both.{CALL}", "sum 1"), (SECOND, "sum 2"))
    assert exchange.answer == ANSWER


@pytest.mark.parametrize(
    ("turn", "limits", "ended_by", "num_made"),
    [
        (CALL * 8, {}, "turns", 8),
        (CALL * 9, {}, "failed_calls", 0),
        (f"{CALL} and {SECOND}", {}, "failed_calls", 0),
        (f"{CALL}{CALL[:-1]}", {}, "failed_calls", 0),
        (CALL * 3, {"max_tool_calls": 2}, "tool_calls", 2),
        (CALL * 8, {"fails_from": 3}, "failed_calls", 3),
    ],
)
def test_calls_of_one_turn_count_one_by_one_and_none_is_made_where_one_is_malformed(
    turn: str, limits: dict[str, Any], ended_by: str, num_made: int
) -> None:
    tool = Tool(fails_from=limits.pop("fails_from", 99))
    played = play([turn], tool=tool, turn_tokens=900, max_turns=1, max_failed_calls=1, **limits)
    assert (played.ended_by, tool.num_calls) == (ended_by, num_made)


def observations(played: Trajectory) -> list[str]:
    role = introduce(ROLES["cto"], "code")
    return [told for one in read_exchanges(played, CHAT, role) for _, told in one.tool_calls]


def test_a_code_agent_reads_what_its_program_printed() -> None:
    turns = [block("print(6 * 7)"), block("1 / 0"), block("print('x' * 9000)"), CALL, ANSWER]
    played = run_or_be_refused(lambda: play(turns, kind="code", tool=Tool()))
    if played is None:
        return
    first, second, third, fourth = observations(played)
    assert first == "42"
    assert second.startswith("error: the program ended with status 1: ")
    assert "ZeroDivisionError" in second
    assert (len(third), set(third)) == (MAX_OBSERVATION_CHARS, {"x"})
    assert fourth == "sum 1"
    assert (played.num_tool_calls, played.num_valid_tool_calls, played.ended_by) == (4, 3, "answer")


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("while True: pass", "was stopped after|ended with status"),
        ("print('y' * 10 ** 7)", "was stopped at 16384 bytes of output"),
        ("import socket; socket.create_connection(('1.1.1.1', 80))", "ended with status 1"),
        ("print(open('/etc/passwd').read())", "ended with status 1"),
        ("import os; print(os.environ['HOME'])", "ended with status 1"),
        ("open('/program.py', 'w')", "ended with status 1"),
        ("import subprocess; subprocess.run(['/bin/sh', '-c', 'id'], check=True)", "ended with status 1"),
        ("raise SystemExit(3)", "ended with status 3"),
    ],
)
def test_a_program_gets_no_further_than_the_sandbox(source: str, says: str) -> None:
    def act() -> None:
        with pytest.raises(ToolError, match=says):
            asyncio.run(run_code(source))

    run_or_be_refused(act)


def test_without_a_sandbox_a_code_agent_is_refused_before_it_speaks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    take_away(monkeypatch, tmp_path)
    with pytest.raises(UserError, match="bwrap is not installed"):
        play([ANSWER], kind="code")
    cases = draw_scenarios(1)
    engine = ScriptedEngine(CHAT, seeded=oracle_team(cases))
    with pytest.raises(UserError, match="bwrap is not installed"):
        asyncio.run(play_episodes(cases, TEAM, engine, CHAT, SAMPLING, kinds={"cto": "code"}))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("no block", None),
        ("```json\n{}\n```", None),
        ("```python\nprint(1)\n```", "print(1)"),
        ("words\n```py\nx = '```'\nprint(x)\n```\n", "x = '```'\nprint(x)"),
    ],
)
def test_a_block_is_found(text: str, found: str | None) -> None:
    assert parse_code(text) == found


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("```python\nprint(1)", "exactly one"),
        ("```python\na\n```\n```python\nb\n```", "exactly one"),
        ("```python\na\n```\nmore", "nothing may follow"),
        (block("#" * 20_001), "20001 characters"),
    ],
)
def test_a_bad_block_is_a_failed_call(text: str, says: str) -> None:
    with pytest.raises(BadToolCallError, match=says):
        parse_code(text)


def team_with(policies: dict[str, Callable[..., str]], **options: object) -> Episode:
    cases = draw_scenarios(1)
    engine = ScriptedEngine(CHAT, seeded={**oracle_team(cases), **policies})
    (episode,) = asyncio.run(play_episodes(cases, TEAM, engine, CHAT, SAMPLING, **options))  # type: ignore[arg-type]
    return episode


def test_a_seat_that_reacts_measures_its_own_parts_and_no_others() -> None:
    (case,) = draw_scenarios(1)
    part = case.parts_of("coo", "A")[1]
    other = case.parts_of("cto", "A")[1]
    seen: list[str] = []
    calls = [
        ToolCall(name="describe", arguments={"option": "A"}),
        ToolCall(name="measure", arguments={"option": "A", "part": list(part.choice)}),
        ToolCall(name="measure", arguments={"option": "A", "part": list(other.choice)}),
        ToolCall(name="sheet", arguments={}),
    ]

    def speak(transcript: str, rng: object) -> str:
        seen.append(transcript)
        return format_tool_call("", calls[len(seen) - 1]) if len(seen) <= len(calls) else ANSWER

    episode = team_with({"coo": speak}, rounds=0)
    assert "Packages:" in seen[1]
    assert f"cost {part.cost}, worth {part.worth}; " in seen[2].removeprefix(seen[1])
    assert "error: part must list upgrades that can be bought together" in seen[3]
    assert "error: unknown tool 'sheet'" in seen[4]
    path = episode.trajectories["coo"]
    assert (path.num_tool_calls, path.num_valid_tool_calls) == (4, 2)
    assert episode.trajectories["reconcile"].num_tool_calls == 0


def test_reconcile_reckons_with_what_is_on_the_table() -> None:
    (case,) = draw_scenarios(1)
    seen: list[str] = []
    calls = [
        ToolCall(name="sheet", arguments={}),
        ToolCall(name="total", arguments={"option": "A", "fund": ["cto"]}),
        ToolCall(name="measure", arguments={"option": "A", "part": []}),
    ]

    def speak(transcript: str, rng: object) -> str:
        seen.append(transcript)
        return format_tool_call("", calls[len(seen) - 1]) if len(seen) <= len(calls) else "done"

    episode = team_with({"reconcile": speak}, rounds=0)
    table = read_episode(case, episode).table
    cto = table["cto"]
    assert cto is not None
    (offer,) = [offer for offer in cto.offers if offer.option == "A"]
    worth = case.public.base["A"] + offer.worth
    assert f"cost {offer.cost} of {case.public.budget}, worth {worth}" in seen[2].removeprefix(seen[1])
    assert all(f"{option} fund" in seen[1] or f"{option} cannot be run" in seen[1] for option in case.options)
    assert "error: unknown tool 'measure'" in seen[3]


def test_a_chat_seat_reads_what_tools_would_tell_and_hears_of_none() -> None:
    heard: list[str] = []

    def speak(transcript: str, rng: object) -> str:
        heard.append(transcript)
        return ANSWER

    team_with({"coo": speak}, kinds={"coo": "chat"}, rounds=0)
    assert "Option A in full.\nPackages:" in heard[0]
    assert "Tools:" not in heard[0]
    team_with({"coo": speak}, rounds=0)
    assert "Packages:" not in heard[1]
    assert "Tools: describe(option)" in heard[1]


def test_a_seat_gets_a_limited_number_of_answers() -> None:
    (case,) = draw_scenarios(1)
    tools = SeatTools(PlanGame(case), "cto")
    call = ToolCall(name="measure", arguments={"option": "A", "part": []})
    assert len({tools(call) for _ in range(MAX_SEAT_CALLS)}) == 1
    with pytest.raises(ToolError, match="no calls left"):
        tools(call)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"option": "A"},
        {"option": ["A"], "part": []},
        {"option": "Z", "part": []},
        {"option": "A", "part": "x"},
        {"option": "A", "part": [1]},
        {"option": "A", "part": ["gold plating"]},
        {"option": "A", "part": [], "seat": "risk"},
    ],
)
def test_wrong_arguments_are_an_error_of_the_tool(arguments: dict[str, Any]) -> None:
    (case,) = draw_scenarios(1)
    for seat in (*SEATS, "reconcile"):
        for name in ("measure", "describe", "total", "sheet"):
            if (name, arguments) in (("sheet", {}), ("describe", {"option": "A"})):
                continue
            with pytest.raises(ToolError):
                SeatTools(PlanGame(case), seat)(ToolCall(name=name, arguments=arguments))


def test_records_and_exports_tell_a_limit_from_an_end() -> None:
    (case,) = draw_scenarios(1)
    kinds: dict[str, AgentKind] = {**dict.fromkeys(TEAM, "chat"), "risk": "react"}
    episode = team_with(
        {"risk": lambda transcript, rng: CALL}, kinds=kinds, limits=AgentLimits(tool_calls=0), rounds=0
    )
    assert episode.trajectories["risk"].ended_by == "tool_calls"
    assert episode.trajectories["cto"].ended_by == "answer"
    assert episode.reports["risk"] == ""
    document = episode_to_atif(episode, CHAT, roles=list_prompt_roles(case, PlanGame(case), kinds))
    ends = {
        one["agent"]["name"]: (one["extra"]["truncated"], one["extra"]["ended_by"])
        for one in document["subagent_trajectories"]
    }
    assert ends["risk"] == (True, "tool_calls")
    assert ends["cto"] == (False, "answer")


@pytest.mark.parametrize(
    ("given", "kinds"),
    [
        ([], {}),
        (["cto=code", "risk=react"], {"cto": "code", "risk": "react"}),
        (["react"], dict.fromkeys(ROLES, "react")),
    ],
)
def test_kinds_are_read_by_role_or_for_all(given: list[str], kinds: dict[str, str]) -> None:
    assert read_kinds(given, ROLES) == kinds


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["cto=coder"], "unknown kind of agent 'coder'; did you mean 'code'"),
        (["ceo=code"], "unknown role 'ceo'"),
        (["cto=code", "cto=chat"], "names 'cto' twice"),
    ],
)
def test_wrong_kinds_are_named(given: list[str], says: str) -> None:
    with pytest.raises(UserError, match=says):
        read_kinds(given, ROLES)


def test_limits_are_read_and_wrong_ones_are_named() -> None:
    assert read_limits(["turns=2", "tool_calls=0"]) == AgentLimits(turns=2, tool_calls=0)
    for given, says in [
        (["turn=2"], "unknown limit 'turn'"),
        (["turns=0"], "--limit turns = '0': give a whole number of 1 or more"),
        (["turns=two"], "give a whole number"),
        (["turns=1", "turns=2"], "twice"),
    ]:
        with pytest.raises(UserError, match=says):
            read_limits(given)

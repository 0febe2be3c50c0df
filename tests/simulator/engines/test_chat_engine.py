"""Seats on a chat endpoint: native tool calls both ways, usage and cost counted, limits, replies kept."""

import asyncio
import contextlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from teacher_server import TeacherServer, say, serve

from roles.base import Answer, Role, Tool
from roles.errors import InfrastructureError, UserError
from scenarios.base import ToolCall
from simulator.agents.agent import Agent
from simulator.chat import MessageChat
from simulator.engines.base import Sampling
from simulator.engines.loop_thread import LoopThread
from simulator.engines.openai.chat_engine import (
    NOT_RUN,
    ChatEngine,
    Ledger,
    ReplyFile,
    write_messages,
)
from simulator.engines.openai.endpoint import Budget, EndpointSettings, ToolShape
from simulator.tool_calls import format_tool_call

ADD = Tool(
    name="add",
    description="Adds two numbers.",
    parameters={"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
)
CLERK = Role(name="clerk", title="Clerk", mandate="You add numbers.", answer=Answer, tools=(ADD,))
TWO_AND_THREE = ToolCall(name="add", arguments={"a": 2, "b": 3})
ANSWER = '{"sum": 5}'


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    thread = LoopThread("test")
    yield thread
    thread.close()


def settle(server: TeacherServer, **changes: Any) -> EndpointSettings:
    quick: dict[str, Any] = {"timeout_s": 5.0, "backoff_s": 0.01, "max_wait_s": 0.1, "max_retries": 2}
    return EndpointSettings(url=server.url, model="tiny", **(quick | changes))


def make_agent(engine: ChatEngine, session: str = "s/clerk", *, with_tools: bool = True) -> Agent:
    def add(call: ToolCall) -> str:
        return str(call.arguments["a"] + call.arguments["b"])

    return Agent(
        role=CLERK,
        policy="clerk",
        engine=engine,
        chat=MessageChat(),
        sampling=Sampling(temperature=0.0, max_completion_tokens=500),
        session=session,
        call_tool=add if with_tools else None,
    )


def call_once(body: dict[str, Any]) -> dict[str, Any]:
    """Call the tool first, then answer."""
    is_told = any(message["role"] == "tool" for message in body["messages"])
    return say(ANSWER) if is_told else say("I add.", TWO_AND_THREE)


def test_native_calls_become_observations_and_go_back_as_results(loop: LoopThread) -> None:
    with serve(call_once) as server:
        engine = ChatEngine(settle(server), loop=loop)
        agent = make_agent(engine)
        assert asyncio.run(agent.answer("What is 2 + 3?")) == ANSWER
        assert asyncio.run(agent.answer("Sure?")) == ANSWER
        engine.close()
    first, second, third = server.bodies
    assert first["messages"] == [
        {"role": "system", "content": "You add numbers."},
        {"role": "user", "content": "What is 2 + 3?"},
    ]
    assert first["tools"] == [ADD.as_chat_tool()]
    assert (first["temperature"], first["max_tokens"]) == (0.0, 500)
    turn, result = second["messages"][2:]
    (call,) = turn["tool_calls"]
    assert turn["content"] == "I add."
    assert json.loads(call["function"]["arguments"]) == {"a": 2, "b": 3}
    assert result == {"role": "tool", "tool_call_id": call["id"], "content": "5"}
    assert [message["role"] for message in third["messages"]] == [
        *("system", "user", "assistant", "tool", "assistant", "user")
    ]
    trajectory = agent.trajectory()
    assert (trajectory.num_tool_calls, trajectory.num_valid_tool_calls) == (1, 1)
    assert trajectory.ended_by == "answer"


def test_several_calls_of_a_turn_have_a_result_each(loop: LoopThread) -> None:
    more = ToolCall(name="add", arguments={"a": 10, "b": 20})

    def call_twice(body: dict[str, Any]) -> dict[str, Any]:
        is_told = any(message["role"] == "tool" for message in body["messages"])
        return say(ANSWER) if is_told else say("", TWO_AND_THREE, more)

    with serve(call_twice) as server:
        engine = ChatEngine(settle(server), loop=loop)
        assert asyncio.run(make_agent(engine).answer("Go.")) == ANSWER
        engine.close()
    turn, *results = server.bodies[1]["messages"][2:]
    assert [result["content"] for result in results] == ["5", "30"]
    assert [result["tool_call_id"] for result in results] == [call["id"] for call in turn["tool_calls"]]


def test_an_endpoint_without_tools_is_told_of_them_in_words(loop: LoopThread) -> None:
    def call_in_text(body: dict[str, Any]) -> dict[str, Any]:
        if "<tool_response>\n5\n" in body["messages"][-1]["content"]:
            return say(ANSWER)
        return say('<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call>')

    with serve(call_in_text) as server:
        engine = ChatEngine(settle(server), loop=loop, shape="text")
        assert asyncio.run(make_agent(engine).answer("What is 2 + 3?")) == ANSWER
        engine.close()
    assert all("tools" not in body for body in server.bodies)
    assert '"name": "add"' in server.bodies[0]["messages"][0]["content"]
    assert "tool_calls" not in server.bodies[1]["messages"][2]


def test_a_call_that_nobody_ran_gets_a_result_before_the_next_question(loop: LoopThread) -> None:
    with serve(lambda body: say("", TWO_AND_THREE)) as server:
        engine = ChatEngine(settle(server), loop=loop)
        agent = make_agent(engine, with_tools=False)
        asyncio.run(agent.answer("What is 2 + 3?"))
        asyncio.run(agent.answer("Vote."))
        engine.close()
    said = server.bodies[1]["messages"][2:]
    assert [message["role"] for message in said] == ["assistant", "tool", "user"]
    assert said[1]["content"] == NOT_RUN


def test_usage_and_cost_are_counted_by_session(loop: LoopThread) -> None:
    ledger = Ledger()
    with serve(lambda body: say(ANSWER)) as server:
        settings = settle(server, price_in=2.0, price_out=10.0)
        engine = ChatEngine(settings, loop=loop, ledger=ledger)
        for session in ("one/clerk", "two/clerk", "two/chief"):
            asyncio.run(make_agent(engine, session).answer("Go."))
        engine.close()
    clerk = ledger.sum_of(suffix="/clerk")
    assert (clerk.num_requests, clerk.prompt_tokens, clerk.completion_tokens) == (2, 200, 20)
    assert clerk.cost == pytest.approx(2 * (100 * 2 + 10 * 10) / 1e6)
    assert ledger.sum_of().num_requests == 3


def test_passing_faults_are_retried_and_lasting_ones_are_the_engines(loop: LoopThread) -> None:
    with serve(lambda body: say(ANSWER)) as server:
        engine = ChatEngine(settle(server), loop=loop)
        server.faults = ["500", "half JSON"]
        assert asyncio.run(make_agent(engine).answer("Go.")) == ANSWER
        server.faults = ["reset"] * 3
        with pytest.raises(InfrastructureError, match="connection"):
            asyncio.run(make_agent(engine, "t/clerk").answer("Go."))
        server.faults = ["401"]
        with pytest.raises(UserError, match="check the key"):
            asyncio.run(make_agent(engine, "u/clerk").answer("Go."))
        engine.close()


def test_a_prompt_that_is_too_long_is_the_models_fault(loop: LoopThread) -> None:
    with serve(lambda body: say(ANSWER)) as server:
        engine = ChatEngine(settle(server), loop=loop)
        server.faults = ["400"]  # "too many tokens"
        agent = make_agent(engine)
        assert asyncio.run(agent.answer("Go.")) == ""
        assert agent.trajectory().ended_by == "turn_tokens"
        assert engine.ledger.sum_of().num_too_long == 1
        engine.close()


def test_the_cost_limit_stops_and_the_file_of_replies_goes_on(loop: LoopThread, tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"

    def play(server: TeacherServer, max_cost: float) -> tuple[int, str | None]:
        settings, answered = settle(server, price_in=1e3, price_out=1e3), 0
        with ReplyFile(path) as replies:
            ledger = Ledger(budget=Budget(max_cost=max_cost, spent=replies.spent))
            engine = ChatEngine(
                settings.model_copy(update={"max_completion_tokens": 20}),
                loop=loop,
                replies=replies,
                ledger=ledger,
            )
            for number in range(8):
                with contextlib.suppress(InfrastructureError):
                    answered += asyncio.run(make_agent(engine, f"{number}/clerk").answer("Go.")) == ANSWER
            engine.close()
        return answered, ledger.stop

    with serve(lambda body: say(ANSWER)) as server:
        first, stop = play(server, max_cost=1.0)
        assert 0 < first < 8
        assert stop is not None
        assert "cost limit 1 reached" in stop
        paid = len(server.bodies)
        assert play(server, max_cost=1.0)[0] == first
        assert len(server.bodies) == paid  # what was paid for is not asked again
        assert play(server, max_cost=10.0) == (8, None)
        assert len(server.bodies) == 8


def test_the_file_of_replies_survives_a_kill_and_refuses_a_second_process(tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    with ReplyFile(path) as replies:
        replies.add("a", None, 0.25)
        with pytest.raises(UserError, match="in use by another process"):
            ReplyFile(path)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"key": "b", "rep')
    with ReplyFile(path) as replies:
        assert replies.spent == 0.25
    assert path.read_bytes() == whole
    path.write_bytes(b"garbage\n" + whole)
    with pytest.raises(UserError, match=r"replies.jsonl:1: damaged line; delete it"):
        ReplyFile(path)


def test_a_model_that_takes_no_temperature_is_asked_without(loop: LoopThread) -> None:
    with serve(lambda body: say(ANSWER)) as server:
        engine = ChatEngine(settle(server), loop=loop)
        server.faults = ["400 temperature"]
        assert asyncio.run(make_agent(engine).answer("Go.")) == ANSWER
        engine.close()
    assert ["temperature" in body for body in server.bodies] == [True, False]


def test_nothing_empty_goes_out_and_users_and_models_take_turns() -> None:
    chat, call = MessageChat(), format_tool_call("", TWO_AND_THREE)
    ids = (*chat.open(CLERK, "", with_tools=True), *chat.encode(call), chat.end_id, *chat.observe(""))
    ids += (*chat.encode("<tool_call>"), chat.end_id, *chat.observe("no call", "none"), *chat.ask(" "))
    for shape in get_args(ToolShape):
        messages, _ = write_messages(chat.read(ids), shape)
        assert all(one["content"] is None or one["content"].strip() for one in messages)
        assert all(one["content"] or one["tool_calls"] for one in messages)
        roles = [one["role"] for one in messages]
        assert ("user", "user") not in itertools.pairwise(roles)

"""The official client in a loop with tools against a role's model, over a real socket."""

import json
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import openai
import pytest
import uvicorn
from served_teams import KEY
from tiny_models import tiny_tokenizer

from emads import load_team
from scenarios.base import ToolCall
from serving.endpoint.app import Governance, make_app
from serving.endpoint.tables import Tables
from simulator.chat import Chat
from simulator.engines.base import Sampling
from simulator.engines.embedded.hf_chat import HFChat
from simulator.engines.scripted import ScriptedEngine
from simulator.tool_calls import format_tool_call

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Adds two numbers.",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                "required": ["a", "b"],
            },
        },
    }
]


@dataclass
class ChattyTeam:
    """The scripted team, whose roles' weights read and write tokens of a real tokenizer."""

    chat: Chat
    sampling: Sampling = field(default_factory=lambda: Sampling(temperature=0.0, max_completion_tokens=200))

    def __getattr__(self, name: str) -> Any:
        return getattr(load_team("scripted"), name)


def speak(transcript: str, rng: random.Random) -> str:
    """Add 2 and 3 and 10 and 20 at once, then both sums, then say the last result."""
    if "<|tool|>35" in transcript:
        return "The sum is 35."
    if "<|tool|>5" in transcript:
        return format_tool_call("", ToolCall(name="add", arguments={"a": 5, "b": 30}))
    if "Tools add" not in transcript:
        return '<tool_call>{"name": "add"'
    first, second = ({"a": 2, "b": 3}, {"a": 10, "b": 20})
    return format_tool_call(
        "I add.", ToolCall(name="add", arguments=first), ToolCall(name="add", arguments=second)
    )


@contextmanager
def serving() -> Iterator[tuple[openai.OpenAI, list[str]]]:
    """The client of a server on a free port, and the transcripts that the CTO read."""
    chat, read = HFChat(tiny_tokenizer(), short_prompts=True), list[str]()

    def listen(transcript: str, rng: random.Random) -> str:
        read.append(transcript)
        return speak(transcript, rng)

    team: Any = ChattyTeam(chat=chat)
    tables = Tables(team, ScriptedEngine(chat, seeded={"cto": listen}))
    app = make_app(tables, "demo", Governance(store=None, key=KEY), url="http://127.0.0.1")
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            thread.join(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0), read
    finally:
        server.should_exit = True
        thread.join(10)


def test_the_official_client_loops_with_tools_until_an_answer() -> None:
    with serving() as (client, read):
        messages: list[Any] = [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "What is 2 + 3 + 10 + 20?"},
        ]
        reasons = []
        for _ in range(5):
            reply = client.chat.completions.create(model="demo/cto", messages=messages, tools=TOOLS)
            choice = reply.choices[0]
            reasons.append(choice.finish_reason)
            messages.append(choice.message)
            calls: list[Any] = list(choice.message.tool_calls or [])
            if not calls:
                break
            for call in reversed(calls):  # results may come in any order
                given = json.loads(call.function.arguments)
                total = given["a"] + given["b"]
                messages.append({"role": "tool", "tool_call_id": call.id, "content": str(total)})
    assert reasons == ["tool_calls", "tool_calls", "stop"]
    assert choice.message.content == "The sum is 35."
    assert messages[2].content == "I add."
    assert [call.function.name for call in messages[2].tool_calls] == ["add", "add"]
    assert reply.usage is not None
    assert reply.usage.prompt_tokens > 0
    assert read[1].startswith(read[0])  # the first turn goes on as it was written
    assert read[1].index("<|tool|>5") < read[1].index("<|tool|>30")  # in the order of the calls


def test_words_that_are_no_call_are_content_and_no_tools_are_offered_on_none() -> None:
    with serving() as (client, read):
        reply = client.chat.completions.create(
            model="demo/cto", messages=[{"role": "user", "content": "Add."}], tools=TOOLS, tool_choice="none"
        )
        assert reply.choices[0].message.tool_calls is None
        assert reply.choices[0].message.content == '<tool_call>{"name": "add"'
        assert "add" not in read[0]


CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
BROKEN = {**CALL, "function": {"name": "add", "arguments": "["}}
ASK, SAID = {"role": "user", "content": "Add."}, {"role": "assistant", "content": "", "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "5"}


@pytest.mark.parametrize(
    ("model", "messages", "more", "named"),
    [
        ("demo", [ASK], {}, "tools"),
        ("demo/cto", [ASK, SAID, ASK], {}, "one for each call"),
        ("demo/cto", [ASK, SAID, {**RESULT, "tool_call_id": "c2"}], {}, "one for each call"),
        ("demo/cto", [ASK, SAID, RESULT, RESULT], {}, "one for each call"),
        ("demo/cto", [RESULT], {}, "begin with user"),
        ("demo/cto", [ASK, RESULT], {}, "begin with user"),
        ("demo/cto", [ASK, {**SAID, "tool_calls": [BROKEN]}, RESULT], {}, "no JSON"),
        ("demo/cto", [ASK], {"tool_choice": "required"}, "tool_choice"),
        ("demo/cto", [ASK], {"parallel_tool_calls": False}, "parallel_tool_calls"),
        ("demo/cto", [ASK], {"tools": [{"type": "function", "function": {"name": "a b"}}]}, "name"),
    ],
)  # fmt: skip
def test_talks_that_cannot_go_on_are_refused_by_name(
    model: str, messages: list[Any], more: dict[str, Any], named: str
) -> None:
    with serving() as (client, _):
        asked: dict[str, Any] = {"tools": TOOLS, **more}
        with pytest.raises(openai.BadRequestError, match=named):
            client.chat.completions.create(model=model, messages=messages, **asked)

"""A teacher's forbidden moves are rejected with their reasons, and nothing wrong is kept."""

import json
from collections import Counter
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
from hostile_policies import SEAT_TEXTS
from teacher_server import Body, Model, Oracle, cut_words, draw, expect_row, play_oracle, say, serve
from teaching import RULES, Pupil, give_wrong_answer, play_all, read_rows, reasons, teach

from roles.registry import ROLES
from scenarios.base import Scenario, Step, ToolCall
from scenarios.hostile import HOSTILE_TEXTS
from scenarios.registry import FAMILIES
from simulator.tool_calls import format_tool_call
from training.data.folders.rows import list_tools, load_messages
from training.data.teacher.checks import find_teacher_fault
from training.data.teacher.teacher import TeachingRules

pytestmark = pytest.mark.usefixtures("no_hang")


SPOILT = {
    "unknown tool": (
        lambda steps: [Step(text="", call=ToolCall(name="search", arguments={"q": "x"})), *steps],
        "tools",
        "calls 'search'",
    ),
    "refused call": (
        lambda steps: [Step(text="", call=ToolCall(name="measure", arguments={"option": 1})), *steps],
        "tools",
        "in vain",
    ),
    "wrong answer": (give_wrong_answer, "answer", "no such part"),
    "no answer": (lambda steps: [*steps[:-1], Step(text="I give up")], "answer", "no JSON object"),
    "lying reasoning": (
        lambda steps: [steps[0], replace(steps[1], text="latency 1 ms, as measured"), *steps[2:]],
        "chain",
        "turn 2 states latency 1,",
    ),
    "lucky guess": (
        lambda steps: [Step(text=steps[-1].text[steps[-1].text.index("{") :])],
        "chain",
        "neither a tool nor the brief gave",
    ),
}


@pytest.mark.parametrize("kind", SPOILT)
def test_a_bad_play_is_rejected_with_its_reason_and_the_good_ones_are_kept(tmp_path: Path, kind: str) -> None:
    spoil, reason, detail = SPOILT[kind]
    with serve(Pupil(draw("cto", 6), spoil)) as server:
        report = teach(tmp_path, server)
    (shard,) = report.shards
    assert (shard.num_rows, shard.rejected, shard.num_unfinished) == (3, {reason: 3}, 0)
    assert report.problem is None
    assert [row["index"] for row in read_rows(tmp_path / shard.path)] == [0, 2, 4]
    lines = [
        json.loads(line) for line in (tmp_path / "cto/train-00000.rejected.jsonl").read_text().splitlines()
    ]
    assert [line["key"] for line in lines] == [f"cto/train/0/{index}/1" for index in (1, 3, 5)]
    assert {line["reason"] for line in lines} == {reason}
    assert all(detail in line["detail"] for line in lines)


def test_a_tool_of_moods_is_rejected_by_replay() -> None:
    scenarios = draw("cto", 1)
    calls = Counter[str]()

    def call_tool(scenario: Scenario, call: ToolCall) -> str:
        calls[call.name] += 1
        return f"{FAMILIES['cto'].call_tool(scenario, call)} call {calls[call.name]}"

    moody = replace(FAMILIES["cto"], call_tool=call_tool)
    with serve(Oracle(scenarios)) as server:
        outcomes = play_all(server, scenarios, families={"cto": moody})
    assert reasons(outcomes) == ["replay"]


def one_reply(text: str, *calls: ToolCall, **more: Any) -> Model:
    return lambda body: say(text, *calls) | more


MEASURE = ToolCall(name="measure", arguments={"option": "A", "part": []})


@pytest.mark.parametrize(
    ("model", "reason", "detail"),
    [
        (one_reply("", MEASURE), "answer", "no answer in 4 turns"),
        (one_reply("so long", finish_reason="length"), "answer", "cut off: length"),
        (one_reply("", finish_reason="model_length"), "answer", "cut off: model_length"),
        (one_reply("<tool_call>{}"), "tools", "close every"),
        (one_reply('<tool_call>{"name": "measure"}</tool_call>'), "tools", "a tool call is"),
        (
            one_reply(f"{format_tool_call('', MEASURE)} and {format_tool_call('', MEASURE)}"),
            "tools",
            "nothing but another tool call",
        ),
        (
            one_reply("", tool_calls=[{"function": {"name": "f", "arguments": "{x"}}]),
            "tools",
            "not valid JSON",
        ),
        (
            one_reply("", tool_calls=[{"function": {"name": "f", "arguments": "[1]"}}]),
            "tools",
            "not an object",
        ),
        (one_reply("", tool_calls=[{"function": {"name": "f", "arguments": '{"a": NaN}'}}]), "tools", "NaN"),
        (one_reply(""), "answer", "no JSON object"),
    ],
)
def test_senseless_replies_are_rejections(model: Model, reason: str, detail: str) -> None:
    with serve(model) as server:
        (outcome,) = play_all(server, draw("cto", 1), rules=TeachingRules(max_turns=4))
    assert outcome.rejection is not None
    assert outcome.rejection.reason == reason
    assert detail in outcome.rejection.detail


DEEP = [f'{{"option": {"[" * depth}{"]" * depth}}}' for depth in (100, 199, 200, 400, 950, 990, 100_000)]


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_hostile_replies_are_rejections_that_can_be_written_down(family: str) -> None:
    (scenario,) = draw(family, 1)
    tool = list_tools(ROLES[scenario.role])[0]["function"]["name"]
    texts = [*HOSTILE_TEXTS, *SEAT_TEXTS, *DEEP, "x" * 100_000]
    replies = [say(text) for text in texts]
    replies += [say(f'<tool_call>{{"name": "{tool}", "arguments": {text}}}</tool_call>') for text in texts]
    calls = [{"function": {"name": tool, "arguments": text}} for text in texts]
    replies += [{"role": "assistant", "content": None, "tool_calls": [call]} for call in calls]
    waiting = chain(replies, repeat(say("")))  # some of it is a sound call, and the play goes on
    with serve(lambda body: next(waiting)) as server:
        outcomes = play_all(server, [scenario] * len(replies), concurrency=1, rules=RULES)
    for outcome in outcomes:
        assert outcome.rejection is not None
        assert json.loads(outcome.describe_rejection())["key"] == scenario.key


def test_calls_in_one_breath_become_turns_of_their_own() -> None:
    (scenario,) = draw("cto", 1)
    *measures, last = play_oracle(scenario)
    found = json.loads(cut_words(last.text))
    answer = replace(last, text=f"best {' + '.join(found['part'])} {found['worth']}\n{cut_words(last.text)}")

    def model(body: Body) -> Body:
        if len(body["messages"]) == 2:
            return say("all at once", *[step.call for step in measures if step.call])
        roles = [message["role"] for message in body["messages"][2:]]
        assert roles == ["assistant", *["tool"] * len(measures)]
        return say(answer.text)

    with serve(model) as server:
        (outcome,) = play_all(server, [scenario])
    assert outcome.row is not None
    messages = load_messages(outcome.row["messages"])[2:]
    assert [message["role"] for message in messages] == ["assistant", "tool"] * len(measures) + ["assistant"]
    assert [message["content"] for message in messages[::2]] == [
        "all at once",
        *[""] * (len(measures) - 1),
        answer.text,
    ]


@pytest.mark.parametrize("field", ["content", "reasoning", "reasoning_content"])
@pytest.mark.parametrize(
    ("thoughts", "rules", "is_kept"),
    [
        ("{hm} I measure every option; 7 + 11 = 18.", RULES, True),
        ("{hm} I measure every option; 7 + 11 = 18.", TeachingRules(reasoning="none"), False),
        ("latency 1", RULES, False),
        ("2 + 2 = 5, therefore B", RULES, False),
        ("It must be 12345.", RULES, False),
        ("<tool_call>{}</tool_call>", RULES, False),
        ("nested <think>again", RULES, False),
    ],
)
def test_thoughts_are_kept_where_their_chain_stands(
    field: str, thoughts: str, rules: TeachingRules, is_kept: bool
) -> None:
    """Thoughts that are left out cost nothing else: the row is the oracle's."""
    scenarios = draw("cto", 1)
    oracle = Oracle(scenarios)

    def model(body: Body) -> Body:
        message = oracle(body)
        if field == "content":
            return message | {"content": f"<think>\n{thoughts}\n</think>\n\n{message['content']}"}
        return message | {field: thoughts}

    with serve(model) as server:
        (outcome,) = play_all(server, scenarios, rules=rules)
        assert not any("<think>" in str(message) for body in server.bodies for message in body["messages"])
    expected = expect_row(scenarios[0])
    if not is_kept:
        assert outcome.row == expected | {"author": "teacher:tiny"}
        return
    assert outcome.row is not None
    written = load_messages(outcome.row["messages"])
    begins = f"<think>\n{thoughts}\n</think>\n"
    for message, plain in zip(written, load_messages(expected["messages"]), strict=True):
        mark = begins if message["role"] == "assistant" else ""
        assert message["content"] == mark + plain["content"]
    assert find_teacher_fault(outcome.row) is None

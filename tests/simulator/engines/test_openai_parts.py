"""Parts of the chat client: rate and cost limits, replies, addresses and keys."""

import asyncio
import email.utils
import itertools
import json
import time
from typing import Any

import pytest
from teacher_server import complete

from roles.errors import UserError
from simulator.engines.openai import client as openai_client
from simulator.engines.openai.client import is_too_long
from simulator.engines.openai.endpoint import (
    Budget,
    BudgetSpentError,
    RateLimit,
    find_completions_url,
    read_api_key,
)
from simulator.engines.openai.reply import CUT, EndpointError, read_message


@pytest.mark.parametrize(
    ("text", "low", "high"), [("7", 7, 7), ("0.5", 0.5, 0.5), ("-3", 0, 0), ("x", None, None)]
)
def test_retry_after_as_a_number(text: str, low: float | None, high: float | None) -> None:
    assert read_wait(text) == low == high


def test_retry_after_as_a_date() -> None:
    wait_s = read_wait(email.utils.formatdate(time.time() + 30, usegmt=True))
    assert wait_s is not None
    assert 25 < wait_s <= 31


@pytest.mark.parametrize("text", ["", "nan", "inf", "Wed, 99 Foo 2026"])
def test_a_senseless_retry_after_is_none(text: str) -> None:
    assert read_wait(text) is None


def read_wait(text: str) -> float | None:
    return openai_client._read_retry_after(text)


def test_requests_are_spread_over_the_minute() -> None:
    async def run() -> list[float]:
        limit, times = RateLimit(600), []

        async def leave() -> None:
            await limit.wait_turn()
            times.append(time.monotonic())

        await asyncio.gather(*(leave() for _ in range(4)))
        return times

    times = asyncio.run(run())
    assert all(later - earlier >= 0.095 for earlier, later in itertools.pairwise(times))


def test_a_reply_without_usage_counts_with_its_upper_bound() -> None:
    reply = read_message(
        json.dumps(
            {
                "choices": [{"message": {"content": "x"}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": -1},
            }
        ).encode()
    )
    assert (reply.prompt_tokens, reply.completion_tokens) == (None, None)


def test_a_budget_lets_requests_wait_for_those_under_way() -> None:
    async def run() -> list[str]:
        budget, events = Budget(max_cost=1.0), []

        async def second() -> None:
            await budget.reserve(0.6)
            events.append("second leaves")

        await budget.reserve(0.6)
        waiting = asyncio.create_task(second())
        await asyncio.sleep(0.01)
        events.append("first settles")
        budget.settle(0.6, 0.1)
        await waiting
        budget.settle(0.6, 0.6)
        with pytest.raises(BudgetSpentError, match=r"cost limit 1 reached, 0\.7000 spent"):
            await budget.reserve(0.6)
        with pytest.raises(BudgetSpentError):
            await budget.reserve(0.1)
        return events

    assert asyncio.run(run()) == ["first settles", "second leaves"]


def test_both_shapes_of_arguments_are_read() -> None:
    message = {
        "content": None,
        "tool_calls": [
            {"id": "a", "function": {"name": "f", "arguments": '{"x": 1}'}},
            {"function": {"name": "g", "arguments": {"y": 2}}},
        ],
    }
    reply = read_message(json.dumps(complete(message, "tool_calls")).encode())
    assert reply.text == ""
    assert [(call.id, call.name, call.arguments) for call in reply.calls] == [
        ("a", "f", '{"x": 1}'),
        ("call_1", "g", '{"y": 2}'),
    ]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://h:8000", "http://h:8000/v1/chat/completions"),
        ("http://h:8000/", "http://h:8000/v1/chat/completions"),
        ("http://h:8000/v1", "http://h:8000/v1/chat/completions"),
        ("https://h/api/v1/", "https://h/api/v1/chat/completions"),
        ("https://h/v1/chat/completions", "https://h/v1/chat/completions"),
    ],
)
def test_the_address(url: str, expected: str) -> None:
    assert find_completions_url(url) == expected


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("localhost:8000", "not of the form"),
        ("ftp://h/v1", "not of the form"),
        ("http://", "not of the form"),
        ("http://h/v1?key=1", "not of the form"),
        ("http://h:99999999/", "not"),
        ("", "not of the form"),
        ("http://me:word@h/v1", "holds a password"),
    ],
)
def test_a_wrong_address_is_refused(url: str, reason: str) -> None:
    with pytest.raises(UserError, match=reason) as caught:
        find_completions_url(url)
    assert "word@" not in str(caught.value)


@pytest.mark.parametrize("value", [None, "", "  ", "sk-\x07", "sk-\u00e4"])
def test_no_key_is_a_mistake_that_does_not_show_it(
    monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    if value is None:
        monkeypatch.delenv("MY_KEY", raising=False)
    else:
        monkeypatch.setenv("MY_KEY", value)
    with pytest.raises(UserError, match="'MY_KEY' holds no API key") as caught:
        read_api_key("MY_KEY")
    assert "sk-" not in str(caught.value)


def _body(message: dict[str, Any], reason: str | None = "stop", **choice: Any) -> bytes:
    said = {"role": "assistant", **message}
    return json.dumps({"choices": [{"message": said, "finish_reason": reason, **choice}]}).encode()


def test_a_reply_in_parts_with_null_arguments_is_read() -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    call = {"id": "c1", "function": {"name": "latency", "arguments": None}}
    message = read_message(
        _body({"content": [thought, {"type": "text", "text": "hi"}], "tool_calls": [call]})
    )
    assert (message.text, message.reasoning) == ("hi", "hm")
    assert message.calls[0].arguments == "{}"


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (_body({"content": ""}, "error", error={"code": 502, "message": "gave up"}), "server_error"),
        (_body({"content": "half"}, "abort"), "server_error"),
        (b'{"error": {"code": 429, "message": "gave up"}}', "rate_limit"),
        (b'{"error": {"code": "402", "message": "gave up"}}', "refused"),
        (b'{"error": "gave up"}', "server_error"),
        (b'{"object": "error", "message": "gave up", "code": 400}', "refused"),
        (b'{"type": "error", "error": {"type": "overloaded_error", "message": "gave up"}}', "server_error"),
        (b'[{"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "gave up"}}]', "refused"),
        (b'{"error": {"code": "context_length_exceeded", "message": "gave up"}}', "refused"),
        (b'{"detail": "gave up"}', "server_error"),
        (_body({"content": "gave up"}, "content_filter"), "server_error"),
        (_body({"content": "gave up"}, "SAFETY"), "server_error"),
        (_body({"content": "gave up"}, None), "server_error"),
        (_body({"content": None}, "tool_calls"), "protocol"),
        (b'{"error": {"message": "gave up"}, ' + _body({"content": "half"})[1:], "server_error"),
        (b'{"error": {"message": "gave up: the request exceeds the available context size"}}', "refused"),
    ],
)
def test_a_failure_inside_a_reply_is_no_turn_and_keeps_its_words(content: bytes, kind: str) -> None:
    with pytest.raises(EndpointError, match=r"gave up|ended for") as raised:
        read_message(content)
    assert raised.value.kind == kind


@pytest.mark.parametrize(
    "words",
    [
        "This model's maximum context length is 4096 tokens.",
        "the request exceeds the available context size, try increasing it",
        "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
        "prompt is too long: 210000 tokens > 200000 maximum",
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens",
        "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
        "Input validation error: `inputs` must have less than 1024 tokens. Given: 5000",
        "input length and `max_tokens` exceed context limit: 199000 + 21333 > 200000",
        "This model's maximum prompt length is 131072 but the request contains 140000 tokens.",
        "Please reduce the length of the messages or completion. (context_length_exceeded)",
        "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000",
        "Input is too long for requested model.",
        "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
    ],
)
def test_wordings_of_a_prompt_that_is_too_long_are_known(words: str) -> None:
    assert is_too_long(EndpointError("refused", f"400 {words}"))
    assert not is_too_long(EndpointError("server_error", f"500 {words}"))


@pytest.mark.parametrize("reason", ["STOP", "MAX_TOKENS", "LENGTH", "model_context_window_exceeded"])
def test_reasons_are_read_in_any_case(reason: str) -> None:
    assert (read_message(_body({"content": "hi"}, reason)).finish_reason in CUT) == (reason != "STOP")


def test_other_refusals_are_no_prompt_that_is_too_long() -> None:
    for words in (
        "unknown field 'tools'",
        "temperature exceeds 1",
        "the model does not exist",
        "the number of tools exceeds the maximum of 128",
        "max_tokens (100000) exceeds the maximum allowed 8192",
        "max_tokens is too large: 100000. This model supports at most 16384 completion tokens",
        "your organization exceeds the limit of its plan",
        "messages with role 'tool' must be a response to a preceding message with 'tool_calls'.",
        "messages: first message must be of the user",
        "max_tokens must be at least 1, got 0",
        "`max_tokens` must be less than or equal to `8192`",
        "Invalid 'messages[3].tool_call_id': string too long. Expected a string with maximum length 40",
        "Input content must be a string",
    ):
        assert not is_too_long(EndpointError("refused", f"400 {words}"))


@pytest.mark.parametrize(
    ("words", "room"),
    [
        ("your request has 1500 input tokens, this model's maximum context length is 2048 tokens", 548),
        (
            "This model's maximum context length is 4096 tokens. However, you requested 1024 output tokens"
            " and your prompt contains at least 3073 input tokens, for a total of at least 4097 tokens.",
            1023,
        ),
        (
            "`inputs` tokens + `max_new_tokens` must be <= 2048. Given: 1500 `inputs` tokens and 1024 `max_n",
            548,
        ),
        ("input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000", 11760),
        (
            "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a"
            " total of 5120 tokens: 4000 tokens from the input messages and 1120 tokens for the completion.",
            96,
        ),
        ("prompt is too long: 210000 tokens > 200000 maximum", None),
    ],
)
def test_the_room_that_a_refusal_leaves_is_read_in_the_words_of_each_server(
    words: str, room: int | None
) -> None:
    assert openai_client._read_room(EndpointError("refused", f"400 {words}")) == room


def test_a_call_in_the_older_form_is_read() -> None:
    message = _body({"content": None, "function_call": {"name": "f", "arguments": "{}"}}, "function_call")
    assert [call.name for call in read_message(message).calls] == ["f"]

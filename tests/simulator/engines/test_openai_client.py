"""The chat-completions client against a real server that misbehaves: a result or a named failure, no hang."""

import asyncio
import json
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from pydantic import SecretStr
from teacher_server import FAULTS, NAMED, OFTEN, TeacherServer, say, serve
from time_limits import fail_after

from roles.errors import UserError
from simulator.engines.openai.client import SENT_HEADERS, ChatClient
from simulator.engines.openai.endpoint import BudgetSpentError, EndpointSettings, read_api_key
from simulator.engines.openai.reply import ChatReply, EndpointError

HARD_LIMIT_S = 30


ASK = [{"role": "user", "content": "hello"}]


KEY = "sk-secret-123"


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    """A test that hangs fails instead."""
    with fail_after(HARD_LIMIT_S):
        yield


def make_settings(server: TeacherServer, **changes: Any) -> EndpointSettings:
    quick: dict[str, Any] = {"timeout_s": 10.0, "backoff_s": 0.01, "max_wait_s": 1.0, "max_retries": 2}
    return EndpointSettings(url=server.url, model="tiny", **(quick | changes))


def use(settings: EndpointSettings, work: Callable[[ChatClient], Awaitable[Any]], spent: float = 0.0) -> Any:
    async def run() -> Any:
        async with ChatClient(settings, spent=spent) as client:
            return await work(client)

    return asyncio.run(run())


def ask_once(settings: EndpointSettings) -> ChatReply:
    reply: ChatReply = use(settings, lambda client: client.complete(ASK))
    return reply


FINAL = {"400": "refused", "huge": "too_large", "429 long": "rate_limit"}


MISTAKES = {
    "401": "check the key",
    "402": "check the balance",
    "404": "check the URL and the model's name",
    "302": "a redirect",
}


def test_every_fault_is_tried() -> None:
    assert set(NAMED) | set(FINAL) | set(MISTAKES) | {"400 max_tokens", "400 temperature"} == set(FAULTS)


@pytest.mark.parametrize("fault", NAMED)
def test_a_passing_fault_is_retried_and_a_lasting_one_is_named(fault: str) -> None:
    with serve(lambda body: say("good")) as server:
        settings = make_settings(server, timeout_s=0.3 if fault in ("silent", "drip") else 10.0)
        server.faults = [fault, fault]
        assert ask_once(settings).text == "good"
        assert len(server.bodies) == 3
        server.faults = [fault] * OFTEN
        with pytest.raises(EndpointError) as caught:
            ask_once(settings)
    assert caught.value.kind == NAMED[fault]
    assert len(server.bodies) == 6


@pytest.mark.parametrize("fault", FINAL)
def test_what_would_fail_again_is_not_asked_again(fault: str) -> None:
    with serve(lambda body: say("good")) as server:
        server.faults = [fault]
        with pytest.raises(EndpointError) as caught:
            ask_once(make_settings(server))
        assert caught.value.kind == FINAL[fault]
        assert len(server.bodies) == 1


@pytest.mark.parametrize("fault", MISTAKES)
def test_what_the_user_must_set_right_is_a_mistake_without_the_key(fault: str) -> None:
    with serve(lambda body: say("good")) as server:
        server.faults = [fault]
        with pytest.raises(UserError, match=MISTAKES[fault]) as caught:
            ask_once(make_settings(server, api_key=SecretStr(KEY)))
        assert server.authorizations == [f"Bearer {KEY}"]
        assert len(server.bodies) == 1
    assert KEY not in str(caught.value)


def test_nobody_listening_is_a_named_failure() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    settings = EndpointSettings(
        url=f"http://127.0.0.1:{port}", model="tiny", backoff_s=0.01, max_retries=1, timeout_s=2.0
    )
    with pytest.raises(EndpointError, match="connection: ConnectError"):
        ask_once(settings)


def test_a_server_that_never_accepts_is_a_named_failure() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as deaf:
        settings = EndpointSettings(
            url=f"http://127.0.0.1:{deaf.getsockname()[1]}", model="tiny", max_retries=0, timeout_s=0.2
        )
        with pytest.raises(EndpointError) as caught:
            ask_once(settings)
    assert caught.value.kind in ("timeout", "connection")


def test_retry_after_is_obeyed_by_everybody() -> None:
    with serve(lambda body: say("good")) as server:
        server.faults = ["429"]

        async def ask_four(client: ChatClient) -> None:
            await client.complete(ASK)
            server.faults = ["429"]
            start = time.monotonic()
            await asyncio.gather(*(client.complete(ASK) for _ in range(4)))
            assert time.monotonic() - start >= 0.05

        use(make_settings(server), ask_four)


def test_backoff_doubles_up_to_its_limit_with_jitter() -> None:
    with serve(lambda body: say("good")) as server:

        async def look(client: ChatClient) -> list[list[float]]:
            error = EndpointError("timeout", "x")
            waits = [[client._choose_wait(error, n) or 0 for _ in range(50)] for n in (1, 2, 3, 4, 5)]
            assert client._choose_wait(error, 6) is None
            return waits

        waits = use(make_settings(server, backoff_s=1.0, max_wait_s=4.0, max_retries=5), look)
    for longest, drawn in zip((1.0, 2.0, 4.0, 4.0, 4.0), waits, strict=True):
        assert all(longest / 2 <= wait <= longest for wait in drawn)
        assert len(set(drawn)) > 10


def test_the_newer_name_of_the_token_limit_is_learnt_once() -> None:
    with serve(lambda body: say("good")) as server:
        server.faults = ["400 max_tokens"]

        async def ask_twice(client: ChatClient) -> None:
            await client.complete(ASK)
            await client.complete(ASK)

        use(make_settings(server, max_completion_tokens=77), ask_twice)
        assert server.bodies[0]["max_tokens"] == 77
        assert [body["max_completion_tokens"] for body in server.bodies[1:]] == [77, 77]
        assert "max_tokens" not in server.bodies[1]


def test_the_request_is_the_protocols() -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    with serve(lambda body: say("good")) as server:
        use(make_settings(server, temperature=0.5), lambda client: client.complete(ASK, tools))
        assert server.bodies[0] == {
            "model": "tiny",
            "messages": ASK,
            "stream": False,
            "max_tokens": 1024,
            "tools": tools,
            "temperature": 0.5,
        }
        ask_once(make_settings(server))
        assert {"tools", "temperature"} & set(server.bodies[1]) == set()
        assert server.authorizations == [None, None]


def test_the_environment_brings_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    with serve(lambda body: say("good")) as server:
        assert ask_once(make_settings(server)).text == "good"


def test_at_most_so_many_requests_at_once() -> None:
    now = most = 0

    def count(body: dict[str, Any]) -> dict[str, Any]:
        nonlocal now, most
        now += 1
        most = max(most, now)
        time.sleep(0.03)
        now -= 1
        return say("good")

    with serve(count) as server:
        use(
            make_settings(server, concurrency=3, timeout_s=5.0),
            lambda client: asyncio.gather(*(client.complete(ASK) for _ in range(12))),
        )
    assert 2 <= most <= 3


def test_tokens_are_priced() -> None:
    with serve(lambda body: say("good")) as server:
        reply = ask_once(make_settings(server, price_in=2.0, price_out=10.0))
    assert (reply.prompt_tokens, reply.completion_tokens) == (100, 10)
    assert reply.cost == pytest.approx((100 * 2 + 10 * 10) / 1e6)


def test_a_reply_that_may_have_been_charged_counts_with_its_upper_bound() -> None:
    with serve(lambda body: say("good")) as server:
        settings = make_settings(server, price_in=2.0, price_out=10.0, max_completion_tokens=50)
        server.faults = ["half JSON", "500", "429"]
        reply = ask_once(settings.model_copy(update={"max_retries": 3}))
        size = len(json.dumps({"model": "tiny", "messages": ASK, "stream": False, "max_tokens": 50}))
        bound = (size * 2 + 50 * 10) / 1e6
        assert reply.cost == pytest.approx(bound + 300e-6)


def test_the_cost_limit_is_never_passed() -> None:
    with serve(lambda body: say("good")) as server:
        settings = make_settings(server, price_in=1e3, price_out=1e3, max_cost=1.0, max_completion_tokens=20)

        async def spend(client: ChatClient) -> tuple[float, int]:
            results = await asyncio.gather(*(client.complete(ASK) for _ in range(40)), return_exceptions=True)
            stops = [result for result in results if isinstance(result, BudgetSpentError)]
            assert len(stops) + sum(isinstance(result, ChatReply) for result in results) == 40
            return client.budget.spent, len(stops)

        spent, num_stopped = use(settings, spend, spent=0.2)
    assert 0.2 + 0.11 * 5 <= spent <= 1.0
    assert num_stopped > 30


def test_the_key_is_shown_nowhere(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    monkeypatch.setenv("MY_KEY", f" {KEY}\n")
    key = read_api_key("MY_KEY")
    with serve(lambda body: say("good")) as server:
        settings = make_settings(server, api_key=key)
        server.faults = ["500"]
        ask_once(settings)
        assert server.authorizations == [f"Bearer {KEY}"] * 2
    assert KEY not in caplog.text
    assert KEY not in repr(settings)


def test_the_environment_brings_no_header_and_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK reads these; only what was configured may leave the machine."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-the-environment")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project-of-the-environment")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Extra: from the environment\nAuthorization: Bearer other")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    with serve(lambda body: say("good")) as server:
        assert ask_once(make_settings(server)).text == "good"
        assert server.authorizations == [None]
        names = {name.lower() for name in server.headers[0]}
    assert names <= set(SENT_HEADERS)

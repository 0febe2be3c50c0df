"""The guard lets through what a service's user allowed, and answers everything else itself."""

import asyncio
import threading
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, WebSocket
from starlette.types import Receive, Scope, Send

from roles.errors import UserError
from serving.guard import Access, Guard, Limits, open_socket, run_server, settle_access

TOKEN = "0123456789abcdef-a-token"
LIMITS = Limits(max_body_bytes=100, open_paths=frozenset({"/health"}))


class Echo:
    """Answers with the request's body, and counts the requests that came through."""

    def __init__(self) -> None:
        self.num_requests = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.num_requests += 1
        message = await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": message["body"]})


def ask(
    access: Access, method: str = "GET", path: str = "/", *, content: Any = None, **headers: str
) -> tuple[httpx.Response, int]:
    """Return the answer of a guarded echo, and whether the echo was reached."""
    echo = Echo()

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app=Guard(echo, access, LIMITS))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8400") as client:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            return await client.request(method, path, content=content, headers=named)

    return asyncio.run(send()), echo.num_requests


LOCAL = settle_access(port=8400)
CLOSED = settle_access(port=8400, token=TOKEN)


@pytest.mark.parametrize("host", ["127.0.0.1:8400", "localhost", "LOCALHOST:9", "[::1]:8400"])
def test_a_name_of_this_machine_is_let_through(host: str) -> None:
    answer, reached = ask(LOCAL, host=host)
    assert (answer.status_code, reached) == (200, 1)


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8400", "", "localhost."),
        *("localhost:", "127.1", "2130706433", "0.0.0.0", "[::ffff:127.0.0.1]", "localhost:80:80"),
    ],
)
def test_another_name_in_host_is_refused(host: str) -> None:
    answer, reached = ask(LOCAL, host=host)
    assert (answer.status_code, reached) == (421, 0)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
)
def test_a_changing_request_of_another_page_is_refused(headers: dict[str, str]) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        answer, reached = ask(LOCAL, method, content=b"x", **headers)
        assert (answer.status_code, reached) == (403, 0)


def test_a_changing_request_of_the_own_page_or_of_a_program_is_let_through() -> None:
    own = {"origin": "http://127.0.0.1:8400", "sec_fetch_site": "same-origin"}
    assert ask(LOCAL, "POST", content=b"x", **own)[1] == 1
    assert ask(LOCAL, "POST", content=b"x")[1] == 1


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": f"Bearer {TOKEN}x"},
        {"cookie": f"session={TOKEN}"},
    ],
)
def test_without_the_token_only_open_paths_answer(headers: dict[str, str]) -> None:
    answer, reached = ask(CLOSED, **headers)
    assert (answer.status_code, reached) == (401, 0)
    assert answer.headers["www-authenticate"] == "Bearer"
    assert ask(CLOSED, path="/health", **headers)[1] == 1


def test_the_token_opens_as_a_header() -> None:
    assert ask(CLOSED, authorization=f"bearer {TOKEN}")[1] == 1


def test_a_body_over_the_limit_never_reaches_the_app_whether_its_length_is_told_or_not() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(11):
            yield b"0123456789"

    for content in (b"x" * 101, chunks()):
        answer, reached = ask(LOCAL, "POST", content=content)
        assert (answer.status_code, reached) == (413, 0)
    answer, reached = ask(LOCAL, "POST", content=b"x" * 100)
    assert (answer.content, reached) == (b"x" * 100, 1)


def test_a_body_that_does_not_come_is_given_up() -> None:
    sent: list[Any] = []

    async def never() -> Any:
        await asyncio.sleep(60)

    async def send(message: Any) -> None:
        sent.append(message)

    guard = Guard(Echo(), LOCAL, Limits(body_timeout_s=0.01))
    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"host", b"localhost")]}
    asyncio.run(guard(scope, never, send))
    assert sent[0]["status"] == 408


def test_every_answer_carries_the_security_headers() -> None:
    for answer in (ask(LOCAL)[0], ask(LOCAL, host="evil.example")[0]):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.4", "example.org", "127.0.0.1.evil.example"])
def test_an_address_beyond_this_machine_needs_the_flag_and_a_token(host: str) -> None:
    for given in ({}, {"is_public": True}, {"token": TOKEN}):
        with pytest.raises(UserError, match="add --public and a token"):
            settle_access(port=8400, host=host, **given)
    assert host in settle_access(port=1, host=host, token=TOKEN, is_public=True).hosts or ":" in host


def test_a_short_token_and_a_port_out_of_range_are_refused() -> None:
    with pytest.raises(UserError, match="5 characters"):
        settle_access(port=8400, token="short")
    with pytest.raises(UserError, match="65536"):
        settle_access(port=65536)


def test_a_further_name_is_answered_to() -> None:
    access = settle_access(port=8400, names=["Team.example"])
    assert ask(access, host="team.example")[1] == 1


@pytest.mark.parametrize(
    "origin", ["http://[", "http://[::1", "http://]:80", "http://[x]", "null", "http://a@[b"]
)
def test_an_origin_that_is_no_address_is_another_one(origin: str) -> None:
    answer, reached = ask(LOCAL, "POST", content=b"x", origin=origin)
    assert (answer.status_code, reached) == (403, 0)


@pytest.mark.parametrize("declares", [True, False])
@pytest.mark.parametrize("access", [LOCAL, CLOSED])
def test_a_refused_body_is_read_on_within_bounds(access: Access, declares: bool) -> None:
    """The sender is done before it is answered, so that no reset hides the answer; not for ever, though."""
    events: list[str] = []
    sizes = [64_000] * 20
    headers = [(b"host", b"localhost")] + ([(b"content-length", b"1280000")] if declares else [])
    scope = {"type": "http", "method": "POST", "path": "/", "headers": headers}

    async def receive() -> Any:
        events.append("read")
        return {"type": "http.request", "body": b"x" * sizes.pop(), "more_body": bool(sizes)}

    async def send(message: Any) -> None:
        events.append(str(message.get("status", "")))

    asyncio.run(Guard(Echo(), access, LIMITS)(scope, receive, send))
    assert events[:20] == ["read"] * 20
    assert events[20] in ("413", "401")

    async def receive_for_ever() -> Any:
        events.append("read")
        return {"type": "http.request", "body": b"x" * (1 << 20), "more_body": True}

    events.clear()
    asyncio.run(Guard(Echo(), access, LIMITS)(scope, receive_for_ever, send))
    assert len(events) < 30


@pytest.mark.parametrize(("origin", "is_let_through"), [(None, True), ("http://evil.example", False)])
def test_a_service_with_websockets_takes_those_of_programs_and_of_its_own_pages(
    origin: str | None, is_let_through: bool
) -> None:
    client = pytest.importorskip("websockets.sync.client")
    app = FastAPI()

    @app.websocket("/ws")
    async def greet(socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_text("hello")

    access = settle_access(port=0)
    listener = open_socket(access)
    port = listener.getsockname()[1]
    serve = partial(run_server, app, access, name="test", listener=listener, has_websockets=True)
    threading.Thread(target=serve, daemon=True).start()
    try:
        with client.connect(f"ws://127.0.0.1:{port}/ws", origin=origin, open_timeout=30) as socket:
            assert socket.recv() == "hello"
    except client.InvalidStatus:
        assert not is_let_through
    else:
        assert is_let_through

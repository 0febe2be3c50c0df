"""A real server of the chat-completions protocol: the oracle is its model, faults are planned."""

import json
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from roles.team import RECONCILER
from scenarios.base import Scenario, Step, ToolCall
from scenarios.registry import FAMILIES
from scenarios.team import PlanGame, TeamScenario
from scenarios.team.demonstrations import hold_meeting
from simulator.tool_calls import format_tool_call
from training.data.folders.rows import build_rows, store_messages
from training.data.teacher.checks import PlayedTurn, write_messages
from training.data.teacher.lessons import Lesson, list_lessons

Body = dict[str, Any]
Model = Callable[[Body], Body]  # request body -> assistant message

OFTEN = 10_000  # requests with the same fault: more than any test makes


def draw(family: str, count: int, difficulty: int = 1) -> list[Scenario]:
    scenarios = [FAMILIES[family].generate("train", 0, index, difficulty) for index in range(count)]
    assert len({scenario.brief for scenario in scenarios}) == count  # the model knows them by their briefs
    return scenarios


def play_oracle(scenario: Scenario) -> tuple[Step, ...]:
    """The demonstration that data folders hold."""
    family = FAMILIES[scenario.family]
    return family.demonstrate(scenario, random.Random(f"demonstration/{scenario.key}"))


def lesson_of(scenario: Scenario) -> Lesson:
    """What a teacher is asked about a role's scenario."""
    (lesson,) = list_lessons(scenario)
    return lesson


def play_seats(case: TeamScenario) -> dict[str, list[Step]]:
    """What the experts do in a meeting, by the briefs that begin their parts; seats report and vote."""
    steps = {}
    for role, said in hold_meeting(PlanGame(case)).messages.items():
        kept = said if role == RECONCILER else (said[0], said[-1])
        steps[said[0].brief] = [step for one in kept for step in one.steps]
    return steps


def cut_words(text: str) -> str:
    """The answer alone."""
    return text[text.index("{") :]


def expect_row(scenario: Scenario) -> dict[str, Any]:
    """The oracle's row of a scenario, with the words of `play_oracle`."""
    (row,) = build_rows(scenario.family, scenario.split, scenario.seed, scenario.index, scenario.difficulty)
    turns = perform(scenario, play_oracle(scenario))
    return row | {"messages": [*row["messages"][:2], *store_messages(write_messages(turns))]}


def perform(scenario: Scenario, steps: Sequence[Step]) -> list[PlayedTurn]:
    family = FAMILIES[scenario.family]
    return [
        PlayedTurn(
            text=step.text,
            call=step.call,
            observation="" if step.call is None else family.call_tool(scenario, step.call),
        )
        for step in steps
    ]


def say(text: str, *calls: ToolCall) -> Body:
    """An assistant message with native calls."""
    message: Body = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {
                "id": f"id{number}",
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(dict(call.arguments))},
            }
            for number, call in enumerate(calls)
        ]
    return message


class Oracle:
    """Plays the next step of the demonstration of the scenario whose brief the conversation holds."""

    def __init__(self, scenarios: Sequence[Scenario], *, native: bool = True) -> None:
        self.scenarios = {scenario.brief: scenario for scenario in scenarios}
        self._native = native

    def find(self, body: Body) -> tuple[Scenario, int]:
        """The scenario and the number of the turn, from 0."""
        roles = [message["role"] for message in body["messages"]]
        return self.scenarios[body["messages"][1]["content"]], roles.count("assistant")

    def __call__(self, body: Body) -> Body:
        scenario, turn = self.find(body)
        step = self.steps(scenario)[turn]
        if step.call is None:
            return say(step.text)
        return say(step.text, step.call) if self._native else say(format_tool_call(step.text, step.call))

    def steps(self, scenario: Scenario) -> Sequence[Step]:
        return play_oracle(scenario)


class TeacherServer(ThreadingHTTPServer):
    """`faults` are taken one per request (None: served well); `answered` counts replies by key and turn."""

    daemon_threads = True

    def __init__(self, model: Model) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.model = model
        self.faults: list[str | None] = []
        self.bodies: list[Body] = []
        self.authorizations: list[str | None] = []
        self.headers: list[dict[str, str]] = []
        self.answered: Counter[tuple[str, int]] = Counter()
        self.hold_after: int | None = None  # from this request on, nobody is answered
        self.released = threading.Event()
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def take_fault(self) -> str | None:
        return self.faults.pop(0) if self.faults else None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that leave early are part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: TeacherServer

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        body: Body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            number = len(self.server.bodies)
            self.server.bodies.append(body)
            self.server.authorizations.append(self.headers["Authorization"])
            self.server.headers.append(dict(self.headers))
            fault = self.server.take_fault()
        if self.server.hold_after is not None and number >= self.server.hold_after:
            self.server.released.wait(60)
            self.close_connection = True
            return
        if self.path != "/v1/chat/completions":
            return self.reply(404, b'{"error": {"message": "no such path"}}')
        message = self.server.model(body)
        if fault is not None:
            return FAULTS[fault](self, message)
        finish_reason = message.pop("finish_reason", "tool_calls" if "tool_calls" in message else "stop")
        self.reply(200, json.dumps(complete(message, finish_reason)).encode())
        if isinstance(self.server.model, Oracle):
            scenario, turn = self.server.model.find(body)
            with self.server.lock:
                self.server.answered[scenario.key, turn] += 1

    def reply(
        self,
        status: int,
        content: bytes,
        *,
        content_type: str = "application/json; charset=utf-8",
        length: int | None = None,
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(content) if length is None else length))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)
        if length is not None:
            self.wfile.flush()
            self.close_connection = True


def complete(message: Body, finish_reason: str = "stop") -> Body:
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    return {"id": "c", "object": "chat.completion", "choices": [choice], "usage": usage}


def _reset(handler: _Handler, message: Body) -> None:
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()
    handler.close_connection = True


def _drip(handler: _Handler, message: Body) -> None:
    """A byte now and then: no single read takes long, the whole never ends."""
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    handler.close_connection = True
    while not handler.server.released.wait(0.02):
        handler.wfile.write(b" ")
        handler.wfile.flush()


def _stay_silent(handler: _Handler, message: Body) -> None:
    handler.server.released.wait(60)
    handler.close_connection = True


def _cut_chunks(handler: _Handler, message: Body) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    handler.wfile.write(b'10\r\n{"choices": [{"m\r\n')
    handler.wfile.flush()
    handler.close_connection = True


def _cut_length(handler: _Handler, message: Body) -> None:
    content = json.dumps(complete(message)).encode()
    handler.reply(200, content[: len(content) // 2], length=len(content))


def _send(content: Callable[[Body], bytes], **how: Any) -> Callable[[_Handler, Body], None]:
    return lambda handler, message: handler.reply(200, content(message), **how)


def _status(status: int, text: str, *headers: tuple[str, str]) -> Callable[[_Handler, Body], None]:
    content = json.dumps({"error": {"message": text, "type": "x"}}).encode()
    return lambda handler, message: handler.reply(status, content, headers=headers)


def _whole(message: Body) -> bytes:
    return json.dumps(complete(message)).encode()


def _nan_logprob(message: Body) -> bytes:
    body = complete(message)
    body["choices"][0]["logprobs"] = {"content": [{"token": "a", "logprob": float("nan")}]}
    return json.dumps(body).encode()


FAULTS: dict[str, Callable[[_Handler, Body], None]] = {
    "silent": _stay_silent,
    "drip": _drip,
    "429": _status(429, "slow down", ("Retry-After", "0.05")),
    "429 plain": _status(429, "slow down"),
    "429 long": _status(429, "come back tomorrow", ("Retry-After", "86400")),
    "429 date": _status(429, "slow down", ("Retry-After", "Wed, 21 Oct 2015 07:28:00 GMT")),
    "429 odd": _status(429, "slow down", ("Retry-After", "soon")),
    "500": _status(500, "internal"),
    "503": _status(503, "overloaded", ("Retry-After", "0.01")),
    "reset": _reset,
    "cut chunks": _cut_chunks,
    "cut length": _cut_length,
    "half JSON": _send(lambda message: _whole(message)[:40]),
    "no JSON": _send(lambda message: b"Internal error"),
    "NaN logprob": _send(_nan_logprob),
    "repeated key": _send(lambda message: b'{"choices": [], "choices": []}'),
    "empty choices": _send(lambda message: b'{"choices": []}'),
    "null message": _send(lambda message: b'{"choices": [{"message": null}]}'),
    "list body": _send(lambda message: b"[1, 2]"),
    "bad call": _send(lambda message: _whole(say("") | {"tool_calls": [{"function": {"name": 7}}]})),
    "HTML": _send(lambda message: b"<html>hello</html>", content_type="text/html"),
    "event stream": _send(lambda message: b"data: {}\n\n", content_type="text/event-stream"),
    "invalid UTF-8": _send(lambda message: _whole(message).replace(b"assistant", b"assist\xff\xfe")),
    "half surrogate": _send(lambda message: _whole(say("\ud800"))),
    "empty body": _send(lambda message: b""),
    "not gzip": _send(_whole, headers=(("Content-Encoding", "gzip"),)),
    "huge": _send(lambda message: b" " * (5 * 1024 * 1024)),
    "400": _status(400, "too many tokens"),
    "400 max_tokens": _status(400, "Unsupported parameter: use 'max_completion_tokens' instead"),
    "400 temperature": _status(400, "Unsupported value: 'temperature' does not support 0.0 with this model"),
    "401": _status(401, "Incorrect API key provided: sk-secret-123"),
    "402": _status(402, "insufficient balance"),
    "404": _status(404, "no model tiny"),
    "302": _status(302, "moved", ("Location", "http://127.0.0.1:1/")),
}


NAMED = {  # faults that may pass, by the kind of failure that they are
    "silent": "timeout",
    "drip": "timeout",
    "429": "rate_limit",
    "429 plain": "rate_limit",
    "429 date": "rate_limit",
    "429 odd": "rate_limit",
    "500": "server_error",
    "503": "server_error",
    "reset": "connection",
    "cut chunks": "connection",
    "cut length": "connection",
    "not gzip": "connection",
    "half JSON": "not_json",
    "no JSON": "not_json",
    "NaN logprob": "not_json",
    "repeated key": "not_json",
    "invalid UTF-8": "not_json",
    "empty body": "not_json",
    "empty choices": "protocol",
    "null message": "protocol",
    "list body": "protocol",
    "bad call": "protocol",
    "half surrogate": "not_json",
    "HTML": "content_type",
    "event stream": "content_type",
}


@contextmanager
def serve(model: Model) -> Iterator[TeacherServer]:
    """The server, running in a thread while the block runs."""
    server = TeacherServer(model)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        server.server_close()
        thread.join(10)

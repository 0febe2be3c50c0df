"""Role families over HTTP as NeMo Gym's resources servers are: seed_session, one path per tool, verify.

A session is one play of one scenario, known by a cookie. Harnesses send a model's tool calls to the path of
the tool's name, so a model can reach every path here. It gains nothing: a session keeps its scenario, and its
first answer is its only one. The test split is not served. The server listens on 127.0.0.1 alone, and the
guard in front of it refuses other names in Host and pages of other origins.
Source: NVIDIA-NeMo/Gym, nemo_gym/base_resources_server.py. pip install 'emads[http]'.
"""

import secrets
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fastapi import FastAPI, HTTPException, Request, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from roles.base import AnswerError, parse_strict_json
from roles.errors import unknown
from scenarios import environment
from scenarios.base import Family, ToolCall
from scenarios.registry import FAMILIES
from serving.guard import Limits, settle_access
from serving.server import run_server

COOKIE = "emads_session"
MAX_SESSIONS = 10_000  # those that were not used for longest are forgotten first
MAX_BODY_BYTES = 4 << 20  # of a row with its rollout
MAX_CALL_BYTES = 64 << 10  # of a tool call's arguments
MOST = 2**63 - 1  # of a seed or an index


class ScenarioName(BaseModel):
    """Coordinates of the scenario of a row.

    Example: ScenarioName(family="cto", split="train", seed=0, index=7, difficulty=2)
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    family: str
    split: Literal["train", "validation"]
    seed: int = Field(ge=0, le=MOST)
    index: int = Field(ge=0, le=MOST)
    difficulty: int = Field(ge=1, le=10)


@dataclass(slots=True, kw_only=True)
class _Session:
    """One play of one scenario."""

    name: ScenarioName
    state: environment.State
    verdict: dict[str, Any] | None = None  # of its first answer


class Sessions:
    """All plays of one server."""

    def __init__(self, families: Mapping[str, Family], max_sessions: int) -> None:
        self._families, self._max_sessions = families, max_sessions
        self._by_token: OrderedDict[str, _Session] = OrderedDict()

    def open(self, token: str | None, name: ScenarioName) -> str:
        """Return the session's token; opening it again with the same scenario changes nothing.

        Raises:
            HTTPException: 409 where the session plays another scenario, 422 for an unknown family.
        """
        if token is not None and token in self._by_token:
            if self._by_token[token].name != name:
                raise HTTPException(409, "this session plays another scenario")
            return token
        if name.family not in self._families:
            raise HTTPException(422, str(unknown("family", name.family, list(self._families))))
        family = self._families[name.family]
        token = secrets.token_hex(16)
        state = environment.reset(family, name.split, name.seed, name.index, name.difficulty)
        self._by_token[token] = _Session(name=name, state=state)
        while len(self._by_token) > self._max_sessions:
            self._by_token.popitem(last=False)
        return token

    def call_tool(self, token: str | None, call: ToolCall) -> str:
        """Return the tool's observation; a call that it refuses is an observation too.

        Raises:
            HTTPException: 404 without a session.
        """
        session = self._find(token)
        if session is None:
            raise HTTPException(404, "no such session; POST /seed_session first")
        if session.state.is_done:
            return "error: the episode is over"
        family = self._families[session.name.family]
        moved = environment.step(family, session.state, call)
        session.state = moved.state
        return moved.observation

    def verify(self, token: str | None, name: ScenarioName, answer: str) -> dict[str, Any]:
        """Return the reward of the session's first answer, with its components.

        Raises:
            HTTPException: 409 where the session plays another scenario.
        """
        session = self._find(token)
        if session is None:
            return {
                "reward": 0.0,
                "mask_sample": True,
                "failure_kind": "session_lost",
                "failure_reason": "no such session; POST /seed_session first",
            }
        if session.name != name:
            raise HTTPException(409, "this session plays another scenario")
        if session.verdict is None:
            session.verdict = self._judge(session, answer)
        return dict(session.verdict)

    def _judge(self, session: _Session, answer: str) -> dict[str, Any]:
        family, state = self._families[session.name.family], session.state
        parts: Mapping[str, float] = {}
        if not state.is_done:
            last = environment.step(family, state, answer)
            session.state, parts = last.state, last.parts
        verdict = session.state.verdict
        assert verdict is not None
        return {
            "reward": parts.get("total", 0.0),
            "mask_sample": False,
            "failure": verdict.failure,
            "exact": verdict.exact,
            **{f"reward_{part}": value for part, value in parts.items() if part != "total"},
        }

    def _find(self, token: str | None) -> _Session | None:
        if token is None or token not in self._by_token:
            return None
        self._by_token.move_to_end(token)
        return self._by_token[token]


def make_app(families: Mapping[str, Family] = FAMILIES, *, max_sessions: int = MAX_SESSIONS) -> FastAPI:
    """Return the server's app; every session is in this process."""
    app = FastAPI(title="emads environments")
    sessions = Sessions(families, max_sessions)

    @app.post("/seed_session")
    async def seed_session(request: Request, response: Response) -> dict[str, Any]:
        row = await _read_object(request)
        token = sessions.open(request.cookies.get(COOKIE), _read_name(row))
        response.set_cookie(COOKIE, token, httponly=True, samesite="strict")
        return {}

    @app.post("/verify")
    async def verify(request: Request) -> dict[str, Any]:
        row = await _read_object(request)
        if not isinstance(row.get("response"), dict):
            raise HTTPException(422, "response: give the Responses object of the rollout")
        answer = find_answer(row["response"])
        return {**row, **sessions.verify(request.cookies.get(COOKIE), _read_name(row), answer)}

    @app.post("/{tool}")
    async def call_tool(tool: str, request: Request) -> dict[str, str]:
        arguments = await _read_object(request, MAX_CALL_BYTES)
        call = ToolCall(name=tool, arguments=arguments)
        return {"observation": sessions.call_tool(request.cookies.get(COOKIE), call)}

    return app


def find_answer(response: Mapping[str, Any]) -> str:
    """Return the text of the last message of a Responses object; "" where it ends without one."""
    output = response.get("output")
    last = output[-1] if isinstance(output, list) and output else None
    if not isinstance(last, dict) or last.get("type") != "message":
        return ""
    content = last.get("content")
    if isinstance(content, str):
        return content
    texts = [part.get("text") for part in content or () if isinstance(part, dict)]
    return "".join(text for text in texts if isinstance(text, str))


def serve(port: int, families: Mapping[str, Family] = FAMILIES) -> None:
    """Serve on 127.0.0.1 until it is interrupted.

    Raises:
        UserError: the port is taken, or none.
    """
    access, limits = settle_access(port=port), Limits(max_body_bytes=MAX_BODY_BYTES)
    run_server(make_app(families), access, name=f"environments {', '.join(families)}", limits=limits)


async def _read_object(request: Request, most: int = MAX_BODY_BYTES) -> dict[str, Any]:
    """Return the body as a strict JSON object; the guard has read at most MAX_BODY_BYTES of it."""
    body = await request.body()
    if len(body) > most:
        raise HTTPException(413, f"the body has more than {most} bytes")
    try:
        value = parse_strict_json(body.decode()) if body else {}
    except (AnswerError, UnicodeDecodeError) as error:
        raise HTTPException(422, f"the body is no strict JSON: {error}") from None
    if not isinstance(value, dict):
        raise HTTPException(422, "the body must be a JSON object")
    return value


def _read_name(row: Mapping[str, Any]) -> ScenarioName:
    try:
        return ScenarioName.model_validate(row.get("scenario"))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(["scenario", *map(str, first["loc"])])
        raise HTTPException(422, f"{where}: {first['msg']}") from None

"""Scenarios over HTTP as NeMo Gym's resources servers are: seed, one path per tool, verify, close, aggregate.

Agents seed with a row and are known by a cookie; environment servers seed with an id of their own
(`resources_session_id`). Harnesses send a model's tool calls to the path of the tool's name, so a model can
reach every path here. It gains nothing: a session keeps its scenario, and its first answer is its only one.
The test split is not served. The server listens on 127.0.0.1 alone, and the guard in front of it refuses
other names in Host and pages of other origins.
Source: nemo-gym 0.7.0, base_resources_server.py. pip install 'emads[http]'.
"""

import secrets
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, HTTPException, Request, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from roles.base import AnswerError, parse_strict_json
from roles.errors import UserError
from serving.environments.plays import KINDS, Kind, Play, ScenarioName, start_play
from serving.guard import Limits

MAX_SESSIONS = 10_000  # those that were not used for longest are forgotten first
SESSION_LOST = {
    "reward": 0.0,
    "mask_sample": True,
    "failure_kind": "session_lost",
    "failure_reason": "no such session; POST /seed_session first",
}


@dataclass(slots=True)
class _Session:
    name: ScenarioName
    owner: str  # whoever may close it or seed it again
    play: Play


class Sessions:
    """All plays of one server; closed sessions are remembered as closed."""

    def __init__(self, kinds: Mapping[str, Kind], max_sessions: int = MAX_SESSIONS) -> None:
        self._kinds, self._max_sessions = kinds, max_sessions
        self._open: OrderedDict[str, _Session] = OrderedDict()
        self._closed: OrderedDict[str, None] = OrderedDict()

    def seed(self, session: str, name: ScenarioName, owner: str = "") -> None:
        """Open the session; seeding it again with the same scenario changes nothing.

        Raises:
            HTTPException: 409 where the session plays another scenario or was closed, 422 for a scenario
                that does not exist.
        """
        if session in self._closed:
            raise HTTPException(409, "this session is closed; choose another id")
        known = self._open.get(session)
        if known is not None:
            if (known.name, known.owner) != (name, owner):
                raise HTTPException(409, "this session plays another scenario")
            return
        try:
            play = start_play(name, self._kinds)
        except UserError as error:
            raise HTTPException(422, str(error)) from None
        self._open[session] = _Session(name, owner, play)
        while len(self._open) > self._max_sessions:
            self._open.popitem(last=False)

    def close(self, session: str, owner: str = "") -> None:
        """Close the session, known or not; no later seed opens it.

        Raises:
            HTTPException: 409 for the session of another episode.
        """
        known = self._open.get(session)
        if known is not None and known.owner != owner:
            raise HTTPException(409, "this session belongs to another episode")
        self._open.pop(session, None)
        self._closed[session] = None
        while len(self._closed) > 10 * self._max_sessions:
            self._closed.popitem(last=False)

    def verify(self, session: str | None, answer: str, name: ScenarioName | None = None) -> dict[str, Any]:
        """The reward of the session's first answer with its parts, as the fields of a verify response.

        Raises:
            HTTPException: 409 where the session plays another scenario.
        """
        play = self.find(session)
        if play is None or session is None:
            return dict(SESSION_LOST)
        if name is not None and self._open[session].name != name:
            raise HTTPException(409, "this session plays another scenario")
        return {**play.answer(answer).as_fields(), "mask_sample": False}

    def find(self, session: str | None) -> Play | None:
        """The play of an open session; None where there is none."""
        if session is None or session not in self._open:
            return None
        self._open.move_to_end(session)
        return self._open[session].play

    def find_by_owner(self, owner: str) -> str | None:
        """The latest open session of an episode."""
        return next((key for key, one in reversed(self._open.items()) if one.owner == owner), None)


COOKIE = "emads_session"
MAX_BODY_BYTES = 4 << 20  # of a row with its rollout
LIMITS = Limits(max_body_bytes=MAX_BODY_BYTES)
MAX_CALL_BYTES = 64 << 10  # of a tool call's arguments

M = TypeVar("M", bound=BaseModel)
Id = Annotated[str, Field(min_length=1, max_length=200)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class EpisodeId(_Strict):
    """One attempt at one rollout."""

    rollout_id: Id
    attempt: int = Field(default=0, ge=0)

    def __str__(self) -> str:
        return f"{self.rollout_id}/{self.attempt}"


class TaskId(_Strict):
    """One task of one task set."""

    taskset: Id
    task_id: Id


class CloseRequest(_Strict):
    """The close of an environment server."""

    resources_session_id: Id
    episode_id: EpisodeId


class SeedRequest(CloseRequest):
    """The seed of an environment server; `task_data` is a row."""

    task_id: TaskId
    task_data: dict[str, Any]


class VerifyRequest(_Strict):
    """The verification that an environment server asks for; `verification_input` holds the response."""

    episode_id: EpisodeId
    task_id: TaskId
    verification_input: dict[str, Any]


def make_app(kinds: Mapping[str, Kind] = KINDS, *, max_sessions: int = MAX_SESSIONS) -> FastAPI:
    """Return the server's app; every session is in this process."""
    app = FastAPI(title="emads environments")
    sessions = Sessions(kinds, max_sessions)

    @app.post("/seed_session")
    async def seed_session(request: Request, response: Response) -> dict[str, Any]:
        row = await _read_object(request)
        if "resources_session_id" in row:
            seed = _validate(SeedRequest, row)
            sessions.seed(seed.resources_session_id, _read_name(seed.task_data), str(seed.episode_id))
            response.set_cookie(COOKIE, seed.resources_session_id, httponly=True, samesite="strict")
            return {"resources_session_id": seed.resources_session_id}
        token = request.cookies.get(COOKIE)
        if sessions.find(token) is None or token is None:
            token = secrets.token_hex(16)
        sessions.seed(token, _read_name(row))
        response.set_cookie(COOKIE, token, httponly=True, samesite="strict")
        return {}

    @app.post("/close_session")
    async def close_session(request: Request) -> dict[str, str]:
        close = _validate(CloseRequest, await _read_object(request))
        sessions.close(close.resources_session_id, str(close.episode_id))
        return {"resources_session_id": close.resources_session_id}

    @app.post("/verify")
    async def verify(request: Request) -> dict[str, Any]:
        row = await _read_object(request)
        if "verification_input" in row:
            asked = _validate(VerifyRequest, row)
            answer = find_answer(_read_response(asked.verification_input))
            verdict = sessions.verify(sessions.find_by_owner(str(asked.episode_id)), answer)
            return {**asked.verification_input, **verdict}
        answer = find_answer(_read_response(row))
        return {**row, **sessions.verify(request.cookies.get(COOKIE), answer, _read_name(row))}

    @app.post("/aggregate_metrics")
    async def aggregate_metrics(request: Request) -> dict[str, Any]:
        body = await _read_object(request)
        verified = body.get("verify_responses")
        if not isinstance(verified, list) or not all(isinstance(one, dict) for one in verified):
            raise HTTPException(422, "verify_responses: give a list of verify responses")
        return aggregate(verified)

    @app.get("/reverify_mode")
    async def reverify_mode() -> str:
        return "unsupported"  # the reward counts the session's tool calls

    @app.post("/{tool}")
    async def call_tool(tool: str, request: Request) -> dict[str, str]:
        arguments = await _read_object(request, MAX_CALL_BYTES)
        play = sessions.find(request.cookies.get(COOKIE))
        if play is None:
            raise HTTPException(404, SESSION_LOST["failure_reason"])
        return {"observation": play.call(tool, arguments)}

    return app


def aggregate(verified: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means of the numbers in verify responses: over all, and by `_ng_task_index` where it is given.

    Responses with `mask_sample` are counted and left out of the means.

    Example: aggregate([{"reward": 1.0}, {"reward": 0.0}])["key_metrics"]["mean/reward"] == 0.5
    """
    counted = [one for one in verified if one.get("mask_sample") is not True]
    groups: dict[Any, list[Mapping[str, Any]]] = {}
    for one in counted:
        task = one.get("_ng_task_index")
        if isinstance(task, int):
            groups.setdefault(task, []).append(one)
    overall = _means(counted)
    return {
        "group_level_metrics": [{"_ng_task_index": task, **_means(group)} for task, group in groups.items()],
        "agent_metrics": {**overall, "count": len(counted), "masked": len(verified) - len(counted)},
        "key_metrics": {key: overall[key] for key in ("mean/reward", "mean/exact") if key in overall},
        "repeat_level_metrics": [],
    }


def _means(responses: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for one in responses:
        for key, value in one.items():
            if isinstance(value, int | float) and not key.startswith("_") and key != "mask_sample":
                values.setdefault(key, []).append(float(value))
    return {f"mean/{key}": fmean(numbers) for key, numbers in values.items()}


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


def _read_response(row: Mapping[str, Any]) -> Mapping[str, Any]:
    response = row.get("response")
    if not isinstance(response, dict):
        raise HTTPException(422, "response: give the Responses object of the rollout")
    return response


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
    return _validate(ScenarioName, row.get("scenario"), "scenario")


def _validate(model: type[M], value: Any, *prefix: str) -> M:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join([*prefix, *map(str, first["loc"])])
        raise HTTPException(422, f"{where}: {first['msg']}") from None

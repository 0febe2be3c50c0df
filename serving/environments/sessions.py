"""Plays of one server by session, as NeMo Gym asks: idempotent seeds and closes, no seed after a close.

A session is one play of one scenario. It keeps its scenario, and its first answer is its only one. The
session of an environment server has the id that its caller chose; the session of an agent a secret one.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import HTTPException

from roles.errors import UserError
from serving.environments.plays import Kind, Play, ScenarioName, start_play

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

    def call(self, session: str | None, name: str, arguments: Mapping[str, Any]) -> str:
        """The tool's observation; a call that it refuses is an observation, too.

        Raises:
            HTTPException: 404 without a session.
        """
        play = self.find(session)
        if play is None:
            raise HTTPException(404, "no such session; POST /seed_session first")
        return play.call(name, arguments)

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

"""Seats to play: what the seat has heard, and forms for its answers and its tools."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from evaluation.minutes.words import MAX_BRIEF_CHARS, say_call, visible
from roles.team import guess_form, list_forms
from scenarios.base import ToolCall
from serving.review.inbox import judge_turn
from serving.review.pages import Form, Visit, first
from serving.review.schema_form import Field, check_value, make_fields, read_fields
from serving.review.turns import SeatTurn
from simulator.governance.seals import NotApprovedError
from simulator.tool_calls import format_tool_call
from training.feedback.labels import time_now

router = APIRouter(prefix="/seats")
SPEAKERS = {"user": "to you", "tool": "what you looked up", "assistant": "you"}


@router.get("/{turn_id}")
async def show_turn(request: Request, turn_id: str) -> Response:
    """The page of a turn, with a form for everything that the seat may say."""
    return _show_page(*_find(request, turn_id))


@router.get("/{turn_id}/state")
async def show_state(request: Request, turn_id: str) -> Response:
    """Show how far the turn is; nothing (204) where the page shows it already."""
    visit, turn = _find(request, turn_id)
    values = _describe(visit, turn)
    return visit.show("seat_state.html", unless_seen=values["seen"], **values)


@router.post("/{turn_id}")
async def answer(request: Request, turn_id: str) -> Response:
    """Keep the person's answer; from here on the person cannot rule on plans of the case."""
    visit, turn = _find(request, turn_id)
    room, form = visit.room, await visit.read_form()
    told = {"seat": turn.seat, "session": turn.session}
    if judge_turn(room, turn, visit.reviewer).state != "waiting":
        visit.note("seat", turn_id, "refused: settled", **told)
        return _show_page(visit, turn, status=HTTPStatus.CONFLICT, why="Not kept: this turn is not yours.")
    name = first(form, "form")
    value, text, errors = _read_answer(turn, name, form)
    if errors or not text or len(text) > turn.most_chars:
        why = "Not kept: see the marked fields." if errors else "Choose what you want to say."
        if not errors and text:
            why = f"Not kept: {len(text)} characters, at most {turn.most_chars}."
        visit.note("seat", turn_id, "refused: not valid", **told)
        status = HTTPStatus.UNPROCESSABLE_ENTITY
        return _show_page(visit, turn, status=status, why=why, chosen=name, value=value, errors=errors)
    found = room.find_case(turn)
    if found is not None:
        try:
            room.services.reviewers.note_seated(found[0], turn.seat, visit.reviewer)
        except NotApprovedError as error:
            raise HTTPException(HTTPStatus.CONFLICT, f"this case cannot be played on: {error}") from None
    room.seats.answer(turn, text, visit.reviewer, time_now())
    visit.note("seat", turn_id, "kept", **told)
    return RedirectResponse(f"/seats/{turn_id}", HTTPStatus.SEE_OTHER)


def _find(request: Request, turn_id: str) -> tuple[Visit, SeatTurn]:
    visit = Visit(request)
    _ = visit.reviewer  # 401 before 404: only who is signed in learns what there is
    turn = visit.room.seats.list_turns().get(turn_id)
    if turn is None:
        raise HTTPException(404, "there is no such turn")
    return visit, turn


def _list_schemas(turn: SeatTurn) -> dict[str, type[BaseModel] | Mapping[str, Any]]:
    """Return the schema of everything that the seat may say, by name: its answers, then its tools."""
    role, with_tools = turn.opening
    tools = {tool.name: tool.parameters for tool in role.tools} if with_tools else {}
    return {**list_forms(turn.seat), **tools}


def _read_answer(turn: SeatTurn, name: str, form: Form) -> tuple[dict[str, Any], str, dict[str, str]]:
    """Return what was filled in, the turn's text, and by field what is wrong; no text where nothing fits."""
    schema = _list_schemas(turn).get(name)
    if schema is None:
        return {}, "", {}
    value = read_fields(schema, form, prefix=name)
    if isinstance(schema, Mapping):
        empty = [part for part in schema.get("required", ()) if value.get(part) in (None, "", [])]
        errors = {f"{name}.{part}": "Fill this in." for part in empty}
        return value, format_tool_call("", ToolCall(name=name, arguments=value)), errors
    found, errors = check_value(schema, value, prefix=name)
    return value, "" if found is None else json.dumps(found.model_dump(mode="json")), errors


def _describe(visit: Visit, turn: SeatTurn) -> dict[str, Any]:
    """Return what the line on a turn's progress shows."""
    state = judge_turn(visit.room, turn, visit.reviewer)
    later = [one for one in visit.room.seats.list_turns().values() if one.session == turn.session]
    later = later[[one.id for one in later].index(turn.id) + 1 :]
    next_id = later[0].id if later else ""
    return {"state": state, "id": turn.id, "next_id": next_id, "seen": f"{state.word}{next_id}"}


def _show_page(
    visit: Visit,
    turn: SeatTurn,
    *,
    status: int = 200,
    why: str = "",
    chosen: str = "",
    value: Mapping[str, Any] | None = None,
    errors: Mapping[str, str] | None = None,
) -> Response:
    role, _ = turn.opening
    schemas = _list_schemas(turn)
    usual = guess_form(turn.seat, [text for speaker, text in turn.heard if speaker == "user"])
    chosen = chosen if chosen in schemas else usual
    forms: list[tuple[str, str, tuple[Field, ...]]] = []
    told = {tool.name: tool.description for tool in role.tools}
    for name, schema in schemas.items():
        known = (value or {}) if name == chosen else {}
        fields = make_fields(schema, known, prefix=name, errors=errors if name == chosen else None)
        forms.append((name, told.get(name, ""), fields))
    return visit.show(
        "seat.html",
        status=status,
        title=f"You play {role.title}",
        mandate=_show_text(role.mandate),
        case=visible((visit.room.find_case(turn) or ("", turn.session))[1]),
        said=[
            (SPEAKERS[speaker], say_call(text) if speaker == "assistant" else _show_text(text))
            for speaker, text in turn.heard[1:]
        ],
        forms=forms,
        chosen=chosen,
        why=why,
        **_describe(visit, turn),
    )


def _show_text(text: str) -> str:
    return visible(text, max_chars=MAX_BRIEF_CHARS)

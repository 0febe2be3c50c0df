"""Answers to judge: approve or reject one, correct it in a form, or say which of two is better."""

import json
import random
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from evaluation.minutes.words import MAX_BRIEF_CHARS, say_call, say_titles, visible
from roles.base import Answer, AnswerError, parse_strict_json, split_answer
from roles.registry import ROLES
from roles.team import NO_OPTION, Decision, list_forms
from serving.review.inbox import judge_item
from serving.review.pages import Form, Visit, first
from serving.review.schema_form import check_value, make_fields, read_fields
from simulator.governance.proposal import MAX_FEEDBACK_CHARS
from training.feedback.labels import Conversation, Label, QueuedItem, add_label

router = APIRouter(prefix="/answers")
PREFIX = "answer"


@router.get("/{item_id}")
async def show_item(request: Request, item_id: str) -> Response:
    """The page of an answer, or of two side by side."""
    return _show_page(*_find(request, item_id))


@router.post("/{item_id}")
async def label(request: Request, item_id: str) -> Response:
    """Keep a label: a verdict, a comparison or a correction."""
    visit, item = _find(request, item_id)
    form = await visit.read_form()
    found = judge_item(visit.room, item, visit.reviewer)
    action = first(form, "action")
    if not found.may_label:
        visit.note("label", item_id, "refused: settled", kind=action[:20])
        return _show_page(visit, item, status=HTTPStatus.CONFLICT, why="Not kept: it has its labels already.")
    try:
        made = _make_label(action, form, item, visit.reviewer, adjudicates=found.may_adjudicate)
    except _MistakesError as mistakes:
        visit.note("label", item_id, "refused: not valid", kind=action[:20])
        return _show_page(
            visit,
            item,
            status=HTTPStatus.UNPROCESSABLE_ENTITY,
            why=str(mistakes),
            value=mistakes.value,
            errors=mistakes.errors,
        )
    add_label(visit.room.settings.labels, made)
    visit.note("label", item_id, "kept", kind=made.kind, ruling=made.ruling)
    return RedirectResponse(f"/answers/{item_id}", HTTPStatus.SEE_OTHER)


class _MistakesError(Exception):
    """Faults of a form, by field."""

    def __init__(
        self, why: str, value: Mapping[str, Any] | None = None, errors: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(why)
        self.value, self.errors = value, errors or {}


def _find(request: Request, item_id: str) -> tuple[Visit, QueuedItem]:
    visit = Visit(request)
    _ = visit.reviewer  # 401 before 404: only who is signed in learns what there is
    item = visit.room.list_items().get(item_id)
    if item is None:
        raise HTTPException(404, "there is no such answer in the queue")
    return visit, item


def _make_label(action: str, form: Form, item: QueuedItem, reviewer: str, *, adjudicates: bool) -> Label:
    more = {"reason": first(form, "reason").strip()[:MAX_FEEDBACK_CHARS], "adjudicates": adjudicates}
    if action in ("approve", "reject"):
        if action == "reject" and not more["reason"]:
            raise _MistakesError("Say why you reject it.")
        return item.judge(action == "approve", reviewer, **more)
    if action in ("left", "right", "neither") and len(item.answers) == 2:
        if not more["reason"]:
            raise _MistakesError("Say why.")
        is_first = (action == "left") != _is_turned(item, reviewer)
        return item.compare(
            "neither" if action == "neither" else "first" if is_first else "second", reviewer, **more
        )
    if action == "correct":
        schema = find_schema(item.seat)
        value = read_fields(schema, form, prefix=PREFIX)
        answer, errors = check_value(schema, value, prefix=PREFIX)
        if isinstance(answer, Decision):
            errors = check_decision(answer, item.options)
        if answer is None or errors:
            raise _MistakesError("Not kept: see the marked fields.", value, errors)
        text = json.dumps(answer.model_dump(mode="json", exclude_defaults=True))
        return item.correct(text, reviewer, **more)
    raise _MistakesError("Choose what you want to say of the answer.")


def check_decision(decision: Decision, options: Mapping[str, list[str]]) -> dict[str, str]:
    """Return by field what a corrected decision breaks of the rules of the table."""
    option = f"{PREFIX}.option"
    if decision.escalate != (decision.option == NO_OPTION):
        return {option: f"{NO_OPTION} goes with escalate, and only with it"}
    if decision.escalate:
        return {f"{PREFIX}.fund": "nothing is funded where the case is handed on"} if decision.fund else {}
    if decision.option not in options:
        return {option: f"options are {', '.join(options)}"}
    unknown = [label for label in decision.fund if label not in options[decision.option]]
    if unknown:
        return {f"{PREFIX}.fund": f"{unknown[0]} has no offer on {decision.option}"}
    return {}


def find_schema(seat: str) -> type[Answer]:
    """Return the schema of what a seat answers first."""
    return next(iter(list_forms(seat).values()))


def _is_turned(item: QueuedItem, reviewer: str) -> bool:
    """Return whether this reviewer sees the second answer on the left: half of them do, of every item."""
    return random.Random(f"{item.id}/{reviewer}").random() < 0.5


def _show_page(
    visit: Visit,
    item: QueuedItem,
    *,
    status: int = 200,
    why: str = "",
    value: Mapping[str, Any] | None = None,
    errors: Mapping[str, str] | None = None,
) -> Response:
    reviewer, labels = visit.reviewer, visit.room.labels_of(item)
    state = judge_item(visit.room, item, reviewer)
    is_own = any(one.reviewer == reviewer for one in labels)
    choices = {
        "option": [*item.options, NO_OPTION],
        "fund": sorted({label for offers in item.options.values() for label in offers}),
    }
    answers = [_show_answer(answer) for answer in item.answers]
    if len(answers) == 2 and _is_turned(item, reviewer):
        answers.reverse()
    known = value if value is not None else _read_value(item.answers[0])
    return visit.show(
        "answer.html",
        status=status,
        item=item,
        id=item.id,
        title=visible(item.title),
        seat=say_titles([item.seat], ROLES),
        table=visible(item.table, max_chars=MAX_BRIEF_CHARS),
        own=_show_answer(item.answers[0]),
        answers=answers,
        reports=_spell(item.reports),
        briefs=_spell(item.briefs),
        votes=_spell(item.votes),
        decisions=[(visible(name), count) for name, count in item.decisions.items()],
        state=state,
        can_label=state.may_label,
        labels=[_show_label(one) for one in labels] if is_own or state.state != "waiting" else [],
        fields=make_fields(find_schema(item.seat), known, prefix=PREFIX, choices=choices, errors=errors),
        is_correcting=value is not None,
        why=why,
        max_reason=MAX_FEEDBACK_CHARS,
    )


def _spell(texts: Mapping[str, str]) -> list[tuple[str, str]]:
    return [
        (say_titles([role], ROLES), visible(text, max_chars=MAX_BRIEF_CHARS)) for role, text in texts.items()
    ]


def _show_answer(answer: Conversation) -> dict[str, Any]:
    """Return an answer for its page: what was looked up, and the last words, a JSON object line by line."""
    *before, last = answer
    calls = [say_call(message.content) for message in before if message.role == "assistant"]
    value = _read_value(answer)
    fields = [(name.replace("_", " "), _say_value(given)) for name, given in value.items()]
    return {"calls": calls, "fields": fields, "text": visible(last.content, max_chars=MAX_BRIEF_CHARS)}


def _say_value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return visible(", ".join(one if isinstance(one, str) else json.dumps(one) for one in value)) or "-"
    return visible(value if isinstance(value, str) else json.dumps(value)) or "-"


def _read_value(answer: Conversation) -> dict[str, Any]:
    """Return the JSON object in an answer's last words; {} where there is none."""
    try:
        value = parse_strict_json(split_answer(answer[-1].content)[1])
    except AnswerError:
        return {}
    return value if isinstance(value, dict) else {}


def _show_label(label: Label) -> tuple[str, str, str]:
    """(reviewer, what was said, reason)."""
    said = "corrected it" if label.kind == "correction" else label.ruling
    if label.kind == "comparison":
        said = "finds neither better" if label.preferred == "neither" else "prefers one"
    return visible(label.reviewer), said, visible(label.reason)

"""Sign-in, sign-out, and the inbox: seats to play, plans that wait and answers to judge."""

import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Literal, get_args
from urllib.parse import urlencode

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from evaluation.minutes.governed import find_ruling, say_time
from evaluation.minutes.words import Tone, visible
from roles.team import NO_OPTION
from serving.review.pages import Visit, first
from serving.review.room import COOKIE, SIGN_OUT, Room, find_reviewer, open_session
from serving.review.turns import SeatTurn
from simulator.governance.proposal import Proposal
from training.feedback.labels import QueuedItem, resolve_labels

RowKind = Literal["seat", "approval", "answer"]
RowState = Literal["waiting", "disputed", "done"]
KINDS: tuple[RowKind, ...] = get_args(RowKind)
STATES: tuple[RowState, ...] = get_args(RowState)
MOST_ROWS = 500
MAX_FACT_CHARS = 120  # of what was last said to a seat
NOBODY = "(nobody)"
router = APIRouter()


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress of a row, for the reviewer that looks.

    Example: Progress(state="waiting", word="1 of 2 labels", tone="warn")
    """

    state: RowState
    word: str  # the state in words
    tone: Tone
    may_adjudicate: bool = False  # the reviewer may decide between the others

    @property
    def may_label(self) -> bool:
        """Tell whether the reviewer may label it."""
        return self.state == "waiting" or self.may_adjudicate


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxRow:
    """One line of the inbox.

    Example: InboxRow(kind="approval", id="9f2c", title="Bank case", key="team/test/0/7/2", facts="option B",
                      progress=Progress(state="waiting", word="waits", tone="warn"), risk=4,
                      since="2026-01-01 00:00:00 UTC").link == "/approvals/9f2c"
    """

    kind: RowKind
    id: str
    title: str
    key: str  # of the case
    progress: Progress
    facts: str
    risk: int | None = None
    since: str = ""

    @property
    def link(self) -> str:
        """Path of its page."""
        return f"/{self.kind}s/{self.id}"


@router.get("/sign-in")
async def show_sign_in(request: Request) -> Response:
    """The page on which a reviewer gives the personal token."""
    return Visit(request).show("sign_in.html", why="")


@router.post("/sign-in")
async def sign_in(request: Request) -> Response:
    """Open a new session for whose token it is."""
    visit = Visit(request)
    form, room = await visit.read_form(signed_in=False), visit.room
    name = find_reviewer(room.key, room.settings.reviewers, first(form, "token").strip())
    if name is None:
        room.audit.append(NOBODY, "sign_in", "-", "refused")
        why = "Nobody has this token. Take the link that `emads review` printed for you."
        return visit.show("sign_in.html", status=HTTPStatus.UNAUTHORIZED, why=why)
    room.audit.append(name, "sign_in", "-", "done")
    response = RedirectResponse("/", HTTPStatus.SEE_OTHER)
    visit.set_cookie(response, open_session(name, time.time()))
    return response


@router.post("/sign-out")
async def sign_out(request: Request) -> Response:
    """End the session: a copy of its cookie opens nothing either."""
    visit = Visit(request)
    await visit.read_form()
    assert visit.session is not None
    visit.note(SIGN_OUT, visit.session.mark, "done")
    visit.room.ended.add(visit.session.mark)
    response = RedirectResponse("/sign-in", HTTPStatus.SEE_OTHER)
    response.delete_cookie(COOKIE)
    return response


@router.get("/")
async def show_inbox(request: Request) -> Response:
    """The inbox."""
    visit = Visit(request)
    return visit.show("inbox.html", kinds=KINDS, states=STATES, **_collect(visit))


@router.get("/rows")
async def show_rows(request: Request) -> Response:
    """The inbox's rows alone; nothing (204) where the page shows them already."""
    visit = Visit(request)
    values = _collect(visit)
    return visit.show("inbox_rows.html", unless_seen=values["version"], **values)


def _collect(visit: Visit) -> dict[str, Any]:
    """Return the inbox's values for a template."""
    reviewer, asked = visit.reviewer, visit.request.query_params
    state, kind = asked.get("state", "waiting"), asked.get("kind", "")  # "" for all
    filters = {"state": state, "kind": kind, "words": asked.get("words", "")[:200]}
    if state not in ("", *STATES) or kind not in ("", *KINDS):
        raise HTTPException(400, f"state is one of {', '.join(STATES)}; kind one of {', '.join(KINDS)}")
    rows, words = list_rows(visit.room, reviewer), filters["words"].casefold().split()
    shown = [
        row
        for row in rows
        if state in ("", row.progress.state)
        and kind in ("", row.kind)
        and all(word in f"{row.title} {row.key} {row.facts}".casefold() for word in words)
    ]
    # a name for what is shown, so that a page asks only for what has changed
    version = hashlib.sha256(repr(shown).encode()).hexdigest()[:16]
    return {
        "rows": shown,
        "num_waiting": sum(row.progress.state == "waiting" for row in rows),
        "num_disputed": sum(row.progress.state == "disputed" for row in rows),
        "filters": filters,
        "version": version,
        "poll": f"/rows?{urlencode({**filters, 'seen': version})}",
    }


def list_rows(room: Room, reviewer: str) -> list[InboxRow]:
    """Return all rows as this reviewer sees them: what waits first, of that seats, then plans by risk."""
    rows = [*_list_turns(room, reviewer), *_list_approvals(room, reviewer), *_list_answers(room, reviewer)]
    rows.sort(key=lambda row: (STATES.index(row.progress.state), KINDS.index(row.kind), -(row.risk or 0)))
    return rows[:MOST_ROWS]


def judge_item(room: Room, item: QueuedItem, reviewer: str) -> Progress:
    """Return how far an item is for this reviewer. Labels of different kinds are never compared."""
    labels, wanted = room.labels_of(item), max(room.settings.labels_per_item, 1)
    authors = {label.reviewer for label in labels}
    if resolve_labels(labels).disputed and len(authors) >= wanted:
        may = reviewer not in authors
        return Progress(state="disputed", word="reviewers disagree", tone="bad", may_adjudicate=may)
    if len(authors) >= wanted or any(label.adjudicates for label in labels):
        return Progress(state="done", word="labelled", tone="good")
    if reviewer in authors:
        return Progress(state="done", word=f"labelled by you, {len(authors)} of {wanted}", tone="")
    word = "waits" if wanted == 1 else f"{len(authors)} of {wanted} labels"
    return Progress(state="waiting", word=word, tone="warn")


def judge_turn(room: Room, turn: SeatTurn, reviewer: str) -> Progress:
    """Return how far a turn of a seat is for this reviewer; whoever began to play the seat goes on."""
    person = room.seats.find_person(turn)
    if room.seats.find_answer(turn.id) is not None:
        return Progress(state="done", word=f"answered by {visible(person or '')}", tone="good")
    if person not in (None, reviewer):
        return Progress(state="done", word=f"{visible(person or '')} plays this seat", tone="")
    return Progress(state="waiting", word="the table waits for it", tone="warn")


def _list_turns(room: Room, reviewer: str) -> Iterator[InboxRow]:
    """Yield a row for every turn of a seat that a person plays, the newest first."""
    for turn in reversed(list(room.seats.list_turns().values())):
        yield InboxRow(
            kind="seat",
            id=turn.id,
            title=f"{turn.opening[0].title}'s turn",
            key=visible((room.find_case(turn) or ("", turn.session))[1]),
            progress=judge_turn(room, turn, reviewer),
            facts=visible(turn.heard[-1][1].partition("\n")[0], max_chars=MAX_FACT_CHARS),
        )


def _list_approvals(room: Room, reviewer: str) -> Iterator[InboxRow]:
    """Yield a row for every request, the newest first; what may be ruled on the gate alone says."""
    services = room.services
    for interrupt_id in services.gate.list_requests()[:MOST_ROWS]:
        request = room.read_request(interrupt_id)
        if request is None:
            continue
        standing = services.gate.stand(request.thread)
        display = standing.find(interrupt_id)
        if display is None:
            continue
        authors = [answer.body["reviewer"] for answer in display.answers]
        if display is not standing.open_display:
            word, tone = find_ruling("superseded" if display.ruling == "waiting" else display.ruling)
            if display.answer is not None:
                word += f" by {visible(str(display.answer.body['reviewer']))}"
            progress = Progress(state="done", word=word, tone=tone)
        elif reviewer in authors:
            progress = Progress(state="done", word="approved by you, a second is needed", tone="")
        else:
            word = "one approval, a second is needed" if authors else "waits"
            progress = Progress(state="waiting", word=word, tone="warn")
        proposal = request.proposal
        yield InboxRow(
            kind="approval",
            id=interrupt_id,
            title=visible(proposal.words.title),
            key=visible(proposal.case),
            progress=progress,
            facts=_describe_plan(proposal),
            risk=proposal.risk_score,
            since=say_time(display.entry.at_s),
        )


def _describe_plan(proposal: Proposal) -> str:
    plan = (
        "handed to you: the team has no plan"
        if proposal.option == NO_OPTION
        else f"option {visible(proposal.option)},"
        f" {visible(proposal.words.meanings.get(proposal.option, 'no words were given'))};"
        f" cost {proposal.cost} of {proposal.budget} k$, worth {proposal.worth} k$"
    )
    again = f"; re-plan {proposal.attempt}" if proposal.attempt else ""
    again += f"; revision {proposal.revision}" if proposal.revision else ""
    return f"{plan}; {proposal.decision_type}{again}"


def _list_answers(room: Room, reviewer: str) -> Iterator[InboxRow]:
    for item in room.list_items().values():
        yield InboxRow(
            kind="answer",
            id=item.id,
            title=visible(item.title),
            key=visible(item.case),
            progress=judge_item(room, item, reviewer),
            facts=f"{', '.join(item.reasons)}; margin {item.margin:.2f}",
        )

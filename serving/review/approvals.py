"""Plans at the gate: the page of a request, and rulings on it, which the gate's own desk signs."""

from http import HTTPStatus

from fastapi import APIRouter
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from roles.errors import InfrastructureError
from serving.review.inbox import list_rows
from serving.review.pages import Visit, first
from serving.review.request_view import RequestState, find_state, list_history, list_work, show_request
from simulator.governance.proposal import MAX_FEEDBACK_CHARS, ReviewRequest, ReviewResponse
from simulator.governance.seals import NotApprovedError

router = APIRouter(prefix="/approvals")
UNPROCESSABLE = HTTPStatus.UNPROCESSABLE_ENTITY
RULINGS = ("approve", "edit", "reject")


@router.get("/{interrupt_id}")
async def show_approval(request: Request, interrupt_id: str) -> Response:
    """The page of a request, with the form to rule on it while it is open."""
    return _show_page(*_find(request, interrupt_id))


@router.get("/{interrupt_id}/state")
async def show_state(request: Request, interrupt_id: str) -> Response:
    """Show how far the request is; nothing (204) where the page shows it already."""
    visit, shown = _find(request, interrupt_id)
    state = _find_state(visit, shown)
    seen = state.word + state.told
    return visit.show("request_state.html", unless_seen=seen, state=state, id=interrupt_id)


@router.post("/{interrupt_id}")
async def rule(request: Request, interrupt_id: str) -> Response:
    """Hand a ruling to the desk; whatever the desk refuses is shown with its reason."""
    visit, shown = _find(request, interrupt_id)
    form = await visit.read_form()
    given = {name: first(form, name) for name in ("ruling", "option", "feedback")}
    told = {"ruling": given["ruling"][:20], "digest": shown.digest}
    try:
        response = _read_ruling(**given, shown=shown)
    except HTTPException as refusal:
        visit.note("ruling", interrupt_id, f"refused: {refusal.detail}", **told)
        return _show_page(visit, shown, status=refusal.status_code, why=refusal.detail, **given)
    visit.note("ruling", interrupt_id, "handed to the desk", **told)
    try:
        entry = visit.room.services.gate.submit(interrupt_id, first(form, "digest"), response, visit.reviewer)
    except NotApprovedError as error:
        visit.note("ruling", interrupt_id, f"refused: {error.reason}", **told)
        return _show_page(visit, shown, status=HTTPStatus.CONFLICT, why=f"Not signed: {error}.")
    except InfrastructureError as error:
        visit.note("ruling", interrupt_id, f"failed: {error}"[:500], **told)
        why = f"Nothing was signed: {error}. Send it again."
        return _show_page(visit, shown, status=HTTPStatus.SERVICE_UNAVAILABLE, why=why)
    visit.note("ruling", interrupt_id, "kept", entry=entry.hash, **told)
    return RedirectResponse(f"/approvals/{interrupt_id}", HTTPStatus.SEE_OTHER)


def _find(request: Request, interrupt_id: str) -> tuple[Visit, ReviewRequest]:
    visit = Visit(request)
    _ = visit.reviewer  # 401 before 404: only who is signed in learns what there is
    shown = visit.room.read_request(interrupt_id)
    if shown is None:
        raise HTTPException(404, "there is no such request in this store")
    return visit, shown


def _find_state(visit: Visit, shown: ReviewRequest) -> RequestState:
    try:
        return find_state(visit.room.services, shown)
    except NotApprovedError as error:
        raise HTTPException(HTTPStatus.CONFLICT, f"this case cannot be ruled on: {error}") from None


def _show_page(
    visit: Visit,
    shown: ReviewRequest,
    *,
    status: int = 200,
    why: str = "",
    ruling: str = "",
    option: str = "",
    feedback: str = "",
) -> Response:
    services, own = visit.room.services, shown.interrupt_id
    rows = list_rows(visit.room, visit.reviewer)
    return visit.show(
        "approval.html",
        status=status,
        case=show_request(shown),
        state=_find_state(visit, shown),
        id=own,
        work=list_work(services, shown.thread),
        history=list_history(services, shown.thread),
        next=next((row for row in rows if row.progress.state == "waiting" and row.id != own), None),
        why=why,
        ruling=ruling,
        chosen_option=option,
        feedback=feedback,
        max_feedback=MAX_FEEDBACK_CHARS,
    )


def _read_ruling(ruling: str, option: str, feedback: str, shown: ReviewRequest) -> ReviewResponse:
    """Return the answer that a form gives.

    Raises:
        HTTPException: no ruling, an edit without an option that can be run, or a rejection without a reason.
    """
    if ruling not in RULINGS:
        raise HTTPException(UNPROCESSABLE, "Choose approve, edit or reject.")
    can_be_run = [
        line.option
        for line in shown.proposal.options
        if line.worth is not None and line.option != shown.proposal.option
    ]
    if ruling == "edit" and option not in can_be_run:
        raise HTTPException(UNPROCESSABLE, "Choose the option that you want in its place.")
    if ruling == "reject" and not feedback.strip():
        raise HTTPException(UNPROCESSABLE, "Say why you reject it: the team reads your reason.")
    given = {
        "decision": ruling,
        "option": option if ruling == "edit" else None,
        "feedback": feedback.strip() if ruling != "approve" else "",
    }
    try:
        return ReviewResponse.model_validate(given)
    except ValidationError:
        why = f"The reason has more than {MAX_FEEDBACK_CHARS} characters; shorten it."
        raise HTTPException(UNPROCESSABLE, why) from None

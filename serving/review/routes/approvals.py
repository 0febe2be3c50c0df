"""Plans at the gate: the page of a request, and rulings on it, which the gate's own desk signs."""

from fastapi import APIRouter
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from roles.errors import InfrastructureError
from serving.review.inbox import list_rows
from serving.review.pages import RefusalError, Website, find_site, first
from serving.review.request_view import RequestState, find_state, list_history, list_work, show_request
from serving.review.routes.general import CONFLICT, SEE_OTHER, UNAVAILABLE, UNPROCESSABLE
from simulator.governance.proposal import MAX_FEEDBACK_CHARS, ReviewRequest, ReviewResponse
from simulator.governance.seals import NotApprovedError

router = APIRouter(prefix="/approvals")
RULINGS = ("approve", "edit", "reject")


@router.get("/{interrupt_id}")
async def show_approval(request: Request, interrupt_id: str) -> Response:
    """The page of a request, with the form to rule on it while it is open."""
    return await _show_page(request, interrupt_id)


@router.get("/{interrupt_id}/state")
async def show_state(request: Request, interrupt_id: str) -> Response:
    """Show how far the request is; nothing (204) where the page shows it already."""
    site, shown = _find(request, interrupt_id)
    state = _find_state(site, shown)
    if request.query_params.get("seen") == state.word + state.told:
        return Response(status_code=204)
    return site.show(request, "request_state.html", state=state, id=interrupt_id)


@router.post("/{interrupt_id}")
async def rule(request: Request, interrupt_id: str) -> Response:
    """Hand a ruling to the desk; whatever the desk refuses is shown with its reason."""
    site, shown = _find(request, interrupt_id)
    form = await site.read_form(request)
    reviewer = site.require_reviewer(request)
    ruling = first(form, "ruling")
    told = {"ruling": ruling[:20], "digest": shown.digest}
    try:
        response = _read_ruling(ruling, first(form, "option"), first(form, "feedback"), shown)
    except RefusalError as refusal:
        site.room.audit.append(reviewer, "ruling", interrupt_id, f"refused: {refusal}", **told)
        values = {"ruling": ruling, "option": first(form, "option"), "feedback": first(form, "feedback")}
        return await _show_page(request, interrupt_id, status=refusal.status, why=str(refusal), **values)
    site.room.audit.append(reviewer, "ruling", interrupt_id, "handed to the desk", **told)
    try:
        entry = site.room.services.gate.submit(interrupt_id, first(form, "digest"), response, reviewer)
    except NotApprovedError as error:
        site.room.audit.append(reviewer, "ruling", interrupt_id, f"refused: {error.reason}", **told)
        return await _show_page(request, interrupt_id, status=CONFLICT, why=f"Not signed: {error}.")
    except InfrastructureError as error:
        site.room.audit.append(reviewer, "ruling", interrupt_id, f"failed: {error}"[:500], **told)
        why = f"Nothing was signed: {error}. Send it again."
        return await _show_page(request, interrupt_id, status=UNAVAILABLE, why=why)
    site.room.audit.append(reviewer, "ruling", interrupt_id, "kept", entry=entry.hash, **told)
    return RedirectResponse(f"/approvals/{interrupt_id}", SEE_OTHER)


def _find(request: Request, interrupt_id: str) -> tuple[Website, ReviewRequest]:
    site = find_site(request)
    site.require_reviewer(request)
    shown = site.room.read_request(interrupt_id)
    if shown is None:
        raise RefusalError(404, "there is no such request in this store")
    return site, shown


def _find_state(site: Website, shown: ReviewRequest) -> RequestState:
    try:
        return find_state(site.room.services, shown)
    except NotApprovedError as error:
        raise RefusalError(CONFLICT, f"this case cannot be ruled on: {error}") from None


async def _show_page(
    request: Request,
    interrupt_id: str,
    *,
    status: int = 200,
    why: str = "",
    ruling: str = "",
    option: str = "",
    feedback: str = "",
) -> Response:
    site, shown = _find(request, interrupt_id)
    waiting = [
        row
        for row in list_rows(site.room, site.require_reviewer(request))
        if row.state == "waiting" and row.id != interrupt_id
    ]
    return site.show(
        request,
        "approval.html",
        status=status,
        case=show_request(shown),
        state=_find_state(site, shown),
        id=interrupt_id,
        work=list_work(site.room.services, shown.thread),
        history=list_history(site.room.services, shown.thread),
        next=waiting[0] if waiting else None,
        why=why,
        ruling=ruling,
        chosen_option=option,
        feedback=feedback,
        max_feedback=MAX_FEEDBACK_CHARS,
    )


def _read_ruling(ruling: str, option: str, feedback: str, shown: ReviewRequest) -> ReviewResponse:
    """Return the answer that a form gives.

    Raises:
        RefusalError: no ruling, an edit without an option that can be run, or a rejection without a reason.
    """
    if ruling not in RULINGS:
        raise RefusalError(UNPROCESSABLE, "Choose approve, edit or reject.")
    can_be_run = [
        line.option
        for line in shown.proposal.options
        if line.worth is not None and line.option != shown.proposal.option
    ]
    if ruling == "edit" and option not in can_be_run:
        raise RefusalError(UNPROCESSABLE, "Choose the option that you want in its place.")
    if ruling == "reject" and not feedback.strip():
        raise RefusalError(UNPROCESSABLE, "Say why you reject it: the team reads your reason.")
    try:
        return ReviewResponse.model_validate(
            {
                "decision": ruling,
                "option": option if ruling == "edit" else None,
                "feedback": feedback.strip() if ruling != "approve" else "",
            }
        )
    except ValidationError:
        raise RefusalError(
            UNPROCESSABLE, f"The reason has more than {MAX_FEEDBACK_CHARS} characters; shorten it."
        ) from None

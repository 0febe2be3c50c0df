"""Sign-in and sign-out, the inbox, and the page of progress and agreement."""

import time
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from serving.review.inbox import KINDS, STATES, Filters, list_rows, make_version
from serving.review.pages import RefusalError, find_site, first
from serving.review.progress import describe_progress
from serving.review.room import COOKIE, SIGN_OUT, find_reviewer, open_session

router = APIRouter()
SEE_OTHER, CONFLICT, UNPROCESSABLE, UNAVAILABLE = 303, 409, 422, 503
NOBODY = "(nobody)"


@router.get("/sign-in")
async def show_sign_in(request: Request) -> Response:
    """The page on which a reviewer gives the personal token."""
    return find_site(request).show(request, "sign_in.html", why="")


@router.post("/sign-in")
async def sign_in(request: Request) -> Response:
    """Open a new session for whose token it is."""
    site = find_site(request)
    form = await site.read_form(request, signed_in=False)
    name = find_reviewer(site.room.key, site.room.settings.reviewers, first(form, "token").strip())
    if name is None:
        site.room.audit.append(NOBODY, "sign_in", "-", "refused")
        why = "Nobody has this token. Take the link that `emads review` printed for you."
        return site.show(request, "sign_in.html", status=401, why=why)
    site.room.audit.append(name, "sign_in", "-", "done")
    response = RedirectResponse("/", SEE_OTHER)
    site.set_cookie(response, open_session(name, time.time()))
    return response


@router.post("/sign-out")
async def sign_out(request: Request) -> Response:
    """End the session: a copy of its cookie opens nothing either."""
    site = find_site(request)
    await site.read_form(request)
    session = site.find_session(request)
    assert session is not None
    site.room.audit.append(session.name, SIGN_OUT, session.mark, "done")
    site.room.ended.add(session.mark)
    response = RedirectResponse("/sign-in", SEE_OTHER)
    response.delete_cookie(COOKIE)
    return response


@router.get("/")
async def show_inbox(request: Request) -> Response:
    """The inbox."""
    site = find_site(request)
    site.require_reviewer(request)
    return site.show(request, "inbox.html", kinds=KINDS, states=STATES, **_collect(request))


@router.get("/rows")
async def show_rows(request: Request) -> Response:
    """The inbox's rows alone; nothing (204) where the page shows them already."""
    site = find_site(request)
    site.require_reviewer(request)
    values = _collect(request)
    if request.query_params.get("seen") == values["version"]:
        return Response(status_code=204)
    return site.show(request, "inbox_rows.html", **values)


@router.get("/progress")
async def show_progress(request: Request) -> Response:
    """Show how much is done, by whom, and how far reviewers agree."""
    site = find_site(request)
    reviewer = site.require_reviewer(request)
    return site.show(request, "progress.html", progress=describe_progress(site.room, reviewer))


def _collect(request: Request) -> dict[str, Any]:
    """Return the inbox's values for a template."""
    site = find_site(request)
    asked = request.query_params
    filters = Filters(
        state=asked.get("state", "waiting"), kind=asked.get("kind", ""), words=asked.get("words", "")[:200]
    )
    if filters.state not in ("", *STATES) or filters.kind not in ("", *KINDS):
        raise RefusalError(400, f"state is one of {', '.join(STATES)}; kind one of {', '.join(KINDS)}")
    rows = list_rows(site.room, site.require_reviewer(request))
    shown = [row for row in rows if filters.fits(row)]
    version = make_version(shown)
    again = {"state": filters.state, "kind": filters.kind, "words": filters.words, "seen": version}
    return {
        "rows": shown,
        "num_waiting": sum(row.state == "waiting" for row in rows),
        "num_disputed": sum(row.state == "disputed" for row in rows),
        "filters": filters,
        "version": version,
        "poll": f"/rows?{urlencode(again)}",
    }

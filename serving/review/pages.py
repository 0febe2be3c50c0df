"""Parts that all pages share: a visit with its session and form, templates, the page that says why not."""

import time
from collections.abc import Mapping, Sequence
from functools import cache
from hmac import compare_digest
from typing import Any
from urllib.parse import parse_qs

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from evaluation.minutes.words import say_titles
from roles.registry import ROLES
from roles.team import RECONCILER
from serving.review.room import (
    COOKIE,
    SESSION_S,
    Room,
    Session,
    make_form_token,
    open_session,
    read_cookie,
    write_cookie,
)
from simulator.governance.resolution import MAX_RISK

FORM_TOKEN = "form_token"
FORM_TYPE = "application/x-www-form-urlencoded"
MAX_FORM_FIELDS = 2_000
Form = Mapping[str, Sequence[str]]


class Visit:
    """One request of a browser: its session, its form, and the page in answer."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.room: Room = request.app.state.room
        names = self.room.settings.reviewers
        found = read_cookie(self.room.key, request.cookies.get(COOKIE), names, time.time())
        # before or after the sign-in; None without one
        self.session = None if found is None or found.mark in self.room.ended else found

    @property
    def reviewer(self) -> str:
        """The name of the signed-in reviewer.

        Raises:
            HTTPException: nobody is signed in.
        """
        if self.session is None or not self.session.name:
            raise HTTPException(401, "sign in first")
        return self.session.name

    def note(self, action: str, subject: str, outcome: str, **told: Any) -> None:
        """Add what the reviewer did to the audit log."""
        self.room.audit.append(self.reviewer, action, subject, outcome, **told)

    async def read_form(self, *, signed_in: bool = True) -> Form:
        """Return a form that this session was given for this path.

        Raises:
            HTTPException: nobody is signed in, or the form is not one of ours.
        """
        if signed_in:
            _ = self.reviewer  # raises
        form = await _read_fields(self.request)
        given, path = form.get(FORM_TOKEN, [""]), self.request.url.path
        wanted = "" if self.session is None else make_form_token(self.room.key, self.session, path)
        if not wanted or len(given) != 1 or not compare_digest(given[0].encode(), wanted.encode()):
            raise HTTPException(403, "this form was not made for your session; open the page again")
        return form

    def show(
        self, template: str, *, status: int = 200, unless_seen: str | None = None, **values: Any
    ) -> Response:
        """Return a page, or nothing (204) if the browser shows `unless_seen` already.

        Forms in it take `form_token(path)`.
        """
        if unless_seen is not None and self.request.query_params.get("seen") == unless_seen:
            return Response(status_code=204)
        session = self.session or open_session("", time.time())
        text = (
            _environment()
            .get_template(template)
            .render(
                reviewer=session.name,
                path=self.request.url.path,
                four_eyes=self.room.services.reviewers.wants_four_eyes(),
                max_risk=MAX_RISK,
                reconciler=say_titles([RECONCILER], ROLES),
                form_token=lambda path: make_form_token(self.room.key, session, path),
                **values,
            )
        )
        response = HTMLResponse(text, status)
        if self.session is None:
            self.set_cookie(response, session)
        return response

    def show_refusal(self, status: int, why: str) -> Response:
        """Return the page that says why not; where nobody is signed in, with the way to."""
        if self.request.headers.get("hx-request"):
            return Response(status_code=status)
        return self.show("refusal.html", status=status, code=status, why=why)

    def set_cookie(self, response: Response, session: Session) -> None:
        """Give the browser its session."""
        response.set_cookie(
            COOKIE,
            write_cookie(self.room.key, session),
            max_age=SESSION_S,
            httponly=True,
            samesite="strict",
            secure=self.room.settings.is_secure,
        )


async def _read_fields(request: Request) -> Form:
    """Return the values of every field, in order; the guard has bounded their size.

    Raises:
        HTTPException: not a form, or one that no page of ours sent.
    """
    if request.headers.get("origin") is None:
        raise HTTPException(403, "the form does not say from which page it comes")
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM_TYPE:
        raise HTTPException(415, "forms alone are read")
    try:
        text = (await request.body()).decode()
        return parse_qs(text, keep_blank_values=True, max_num_fields=MAX_FORM_FIELDS, errors="strict")
    except ValueError:
        raise HTTPException(400, f"a form is UTF-8 text of at most {MAX_FORM_FIELDS} fields") from None


def first(form: Form, name: str) -> str:
    """Return the first value of a field, without line ends of another system; "" without one."""
    return form.get(name, [""])[0].replace("\r\n", "\n")


@cache
def _environment() -> Environment:
    """Return the templates: everything that is put in is escaped, and everything named must be given."""
    return Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=ChoiceLoader([PackageLoader("serving.review"), PackageLoader("evaluation")]),
    )

"""The web app: what every route shares, and the routes put together."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from evaluation.pages import load_template
from serving.guard import Limits
from serving.review.pages import RefusalError, Website
from serving.review.room import ReviewSettings, Room, open_room
from serving.review.routes import answers, approvals, general, seats

MAX_FORM_BYTES = 256 << 10
LIMITS = Limits(
    max_body_bytes=MAX_FORM_BYTES,
    headers={
        "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
        " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
        "cache-control": "no-store",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "permissions-policy": "camera=(), microphone=(), geolocation=()",
        "referrer-policy": "same-origin",  # with "no-referrer" browsers hide the Origin of our own forms
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
    },
)
STATIC = {
    "htmx.min.js": "text/javascript",
    "htmx.LICENSE.txt": "text/plain; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "review.js": "text/javascript",
    "review.css": "text/css",
    "minutes.css": "text/css",
}


def make_app(settings: ReviewSettings, *, room: Room | None = None) -> FastAPI:
    """Return the app; it opens store, queue and logs when it starts, unless an open `room` is given.

    It is to stand behind `serving.guard.Guard` with `LIMITS`.
    """

    @asynccontextmanager
    async def open_for_life(app: FastAPI) -> AsyncIterator[None]:
        if room is not None:
            app.state.site = Website(room)
            yield
            return
        async with open_room(settings) as opened:
            app.state.site = Website(opened)
            yield

    app = FastAPI(
        title="emads review", lifespan=open_for_life, docs_url=None, redoc_url=None, openapi_url=None
    )
    contents = {name: _read_static(name) for name in STATIC}

    @app.get("/static/{name}")
    async def read_static(name: str) -> Response:
        if name not in contents:
            raise RefusalError(404, "there is no such file")
        headers = {"cache-control": "private, max-age=3600"}
        return Response(contents[name], media_type=STATIC[name], headers=headers)

    for part in (general, approvals, answers, seats):
        app.include_router(part.router)

    @app.exception_handler(RefusalError)
    async def show_refusal(request: Request, refusal: RefusalError) -> Response:
        return _site(request).show_refusal(request, refusal.status, str(refusal))

    @app.exception_handler(HTTPException)
    async def show_http_error(request: Request, error: HTTPException) -> Response:
        return _site(request).show_refusal(request, error.status_code, str(error.detail))

    @app.exception_handler(RequestValidationError)
    async def show_bad_request(request: Request, error: RequestValidationError) -> Response:
        return _site(request).show_refusal(request, 400, "a value in the address cannot be read")

    return app


def _site(request: Request) -> Website:
    site: Website = request.app.state.site
    return site


def _read_static(name: str) -> bytes:
    if name == "minutes.css":  # the minutes carry it inside; here it is a file, for the policy's sake
        return load_template("style.j2").render().encode()
    return files("serving.review").joinpath("static", name).read_bytes()

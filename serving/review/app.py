"""The review app of a run or a store: its routes put together, and every reviewer's personal link."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from importlib.resources import files
from pathlib import Path

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from evaluation.pages import load_template
from roles.errors import UserError
from serving.guard import Access, Limits, name_address, open_socket, run_server
from serving.review import answers, approvals, inbox, progress, seats
from serving.review.pages import Visit
from serving.review.room import ReviewSettings, Room, make_token, open_room
from simulator.governance.runner import open_services
from simulator.governance.seals import NotApprovedError
from training.feedback.labels import QUEUE_FILE

RUN_STORE = Path("review/store.db")  # in a run's folder

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
MINUTES_STYLE = "minutes.css"
STATIC = {
    "htmx.min.js": "text/javascript",
    "htmx.LICENSE.txt": "text/plain; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "review.js": "text/javascript",
    "review.css": "text/css",
    MINUTES_STYLE: "text/css",
}


def make_app(settings: ReviewSettings, *, room: Room | None = None) -> FastAPI:
    """Return the app; it opens store, queue and logs when it starts, unless an open `room` is given.

    It is to stand behind `serving.guard.Guard` with `LIMITS`.
    """

    @asynccontextmanager
    async def open_for_life(app: FastAPI) -> AsyncIterator[None]:
        async with nullcontext(room) if room is not None else open_room(settings) as app.state.room:
            yield

    app = FastAPI(
        title="emads review", lifespan=open_for_life, docs_url=None, redoc_url=None, openapi_url=None
    )
    folder = files("serving.review").joinpath("static")
    contents = {name: folder.joinpath(name).read_bytes() for name in STATIC if name != MINUTES_STYLE}
    # the minutes carry it inside; here it is a file, for the policy's sake
    contents[MINUTES_STYLE] = load_template("style.j2").render().encode()

    @app.get("/static/{name}")
    async def read_static(name: str) -> Response:
        if name not in contents:
            raise HTTPException(404, "there is no such file")
        headers = {"cache-control": "private, max-age=3600"}
        return Response(contents[name], media_type=STATIC[name], headers=headers)

    for part in (inbox, progress, approvals, answers, seats):
        app.include_router(part.router)

    @app.exception_handler(HTTPException)
    async def show_http_error(request: Request, error: HTTPException) -> Response:
        return Visit(request).show_refusal(error.status_code, str(error.detail))

    @app.exception_handler(RequestValidationError)
    async def show_bad_request(request: Request, error: RequestValidationError) -> Response:
        return Visit(request).show_refusal(400, "a value in the address cannot be read")

    return app


def find_store(path: Path) -> tuple[Path, Path | None]:
    """Return the gate's store and the queue of a run's folder, or of a store's file.

    Raises:
        UserError: neither a run nor a store.
    """
    if path.is_dir():
        if not (path / "config.yaml").is_file():
            raise UserError(f"no run in {path} (no config.yaml there); name a run, or a store that --db made")
        store = path / RUN_STORE
        store.parent.mkdir(exist_ok=True)
        return store, path / QUEUE_FILE
    if not path.is_file():
        raise UserError(
            f"no store at {path}; make one: emads simulate --protocol full --reviewer web --db {path} ..."
        )
    return path, None


def remove_reviewer(store: Path, name: str) -> None:
    """Take a person's registration back; what they have approved and nobody has committed counts no more.

    Raises:
        UserError: nobody of this name is registered, or the store or its key cannot be used.
    """

    async def remove() -> None:
        async with open_services(store, key=ReviewSettings(store=store, reviewers=()).read_key()) as services:
            try:
                services.reviewers.remove(name)
            except NotApprovedError as error:
                raise UserError(f"--remove {name!r}: {error}") from None

    asyncio.run(remove())


def serve_review(settings: ReviewSettings, access: Access) -> None:
    """Serve until it is interrupted.

    Raises:
        UserError: a store, key, queue or log that cannot be used, or an address that cannot be bound.
    """
    key = settings.read_key()
    with open_socket(access) as listener:
        for name in settings.reviewers:
            link = f"{name_address(listener)}/sign-in#{make_token(key, name)}"
            print(f"link of {name}: {link}", flush=True)
        run_server(make_app(settings), access, name="review", limits=LIMITS, listener=listener)

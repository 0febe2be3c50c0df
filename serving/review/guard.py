"""Checks of every request before any page sees it, and the headers of every reply.

A request must name a host of ours. One that changes something must come from a page of ours, be a form, and
be small. These hold beside the session and the form's own token, which the pages check.
"""

from collections.abc import Iterable
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_FORM_BYTES = 256 << 10
MAX_FORM_FIELDS = 2_000
MAX_URL_BYTES = 4 << 10
READING, CHANGING = ("GET", "HEAD"), ("POST",)
FORM_TYPE = "application/x-www-form-urlencoded"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # with "no-referrer" browsers hide the Origin of our own forms
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}


class TooLargeError(Exception):
    """A body, or a number of fields, over its limit."""


class Guard:
    """Wraps the app; `origins` are those of its own pages, as browsers name them: http://127.0.0.1:8800."""

    def __init__(self, app: ASGIApp, origins: Iterable[str]) -> None:
        self._app = app
        self._origins = frozenset(origins)
        self._hosts = frozenset(origin.partition("://")[2] for origin in self._origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or pass it on; add the headers to either reply."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        refusal = self._find_refusal(scope)
        if refusal is not None:
            status, why = refusal
            await PlainTextResponse(f"refused: {why}\n", status)(scope, receive, send_guarded)
            return
        await self._app(scope, receive, send_guarded)

    def _find_refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Return status and reason; None for a request that may pass."""
        headers, method = Headers(scope=scope), scope["method"]
        if len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"") > MAX_URL_BYTES:
            return 414, "the address is too long"
        if headers.getlist("host") != [host for host in headers.getlist("host")[:1] if host in self._hosts]:
            return 400, "this address is not one of the app's own; see --url"
        if not headers.get("host"):
            return 400, "no host is named"
        if method not in (*READING, *CHANGING):
            return 405, f"{method} is not used here"
        site = headers.get("sec-fetch-site", "same-origin")
        if method in READING:
            is_link = headers.get("sec-fetch-mode", "navigate") == "navigate"
            if site in ("cross-site", "same-site") and not is_link:
                return 403, "another site asks"
            return None
        if site != "same-origin":
            return 403, "another site sends this form"
        if headers.getlist("origin") not in [[origin] for origin in self._origins]:
            return 403, "the form is not from a page of this app"
        if headers.get("content-type", "").partition(";")[0].strip().lower() != FORM_TYPE:
            return 415, "forms alone are read"
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or int(length) > MAX_FORM_BYTES:
            return 413, f"a form has at most {MAX_FORM_BYTES} bytes"
        return None


async def read_form(request: Request) -> dict[str, list[str]]:
    """Return the values of every field of a form, in order; empty values are kept.

    Raises:
        TooLargeError: more than MAX_FORM_BYTES or MAX_FORM_FIELDS.
        UnicodeDecodeError: not UTF-8.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM_BYTES:
            raise TooLargeError(f"a form has at most {MAX_FORM_BYTES} bytes")
    try:
        return parse_qs(
            body.decode("utf-8"), keep_blank_values=True, max_num_fields=MAX_FORM_FIELDS, errors="strict"
        )
    except UnicodeDecodeError:
        raise
    except ValueError:
        raise TooLargeError(f"a form has at most {MAX_FORM_FIELDS} fields") from None

"""Runs every web service of this layer behind checks of address, Host, Origin, token and size of a request.

A service listens on this machine alone unless its user names another address, gives a token and says so
with a flag. `Guard` wraps an ASGI app and answers what it refuses itself; tokens of forms are the app's.
"""

import asyncio
import hmac
import ipaddress
import json
import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import urlsplit

import uvicorn
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from roles.errors import UserError

LOOPBACK = "127.0.0.1"
LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
OWN_SITES = frozenset({"same-origin", "none"})  # values of Sec-Fetch-Site: our own page, or no page at all
MIN_TOKEN_CHARACTERS = 16
MAX_BODY_BYTES = 1 << 20
BODY_TIMEOUT_S = 30.0
DRAINED_BYTES, DRAIN_S = 16 << 20, 2.0  # of a refused body: read on, so that its sender sees the answer
GRACE_S = 30  # for requests at work when the service is told to end
KEEP_ALIVE_S = 15
MAX_CONNECTIONS = 1_000  # at once; one more is answered with 503
HEADERS = {
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """From where a service is reached, and what a caller must show. Made by `settle_access`.

    Example: settle_access(port=8400).hosts == LOOPBACK_NAMES
    """

    host: str  # address that the service binds
    port: int  # 0: any free one
    hosts: frozenset[str]  # names that a request's Host may carry, in lower case, without port
    token: str | None  # that every request must carry; None: loopback needs none


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of requests, beyond `Access`. Example: Limits(open_paths=frozenset({"/health"}))"""

    max_body_bytes: int = MAX_BODY_BYTES  # of a request
    body_timeout_s: float = BODY_TIMEOUT_S  # until its last byte is here
    open_paths: frozenset[str] = frozenset()  # need no token
    headers: Mapping[str, str] = field(default_factory=lambda: dict(HEADERS))  # where a response lacks them


def settle_access(
    *,
    port: int,
    host: str = LOOPBACK,
    token: str | None = None,
    is_public: bool = False,
    names: Iterable[str] = (),
    has_own_tokens: bool = False,
) -> Access:
    """Return the access of a service.

    `is_public`: its user said that other machines may reach it. `names`: further names in requests' Host,
    such as that of a proxy. `has_own_tokens`: the app itself asks every caller for a token.

    Raises:
        UserError: an address beyond this machine without `is_public` and a token, a short token, a bad port.

    Examples:
        >>> settle_access(port=8400, host="0.0.0.0")
        Traceback (most recent call last):
            ...
        roles.errors.UserError: --host 0.0.0.0 is reached from other machines: add --public and a token
    """
    if not 0 <= port <= 65535:
        raise UserError(f"--port {port} is no port (0 to 65535; 0 takes any free one)")
    if token is not None and (
        len(token) < MIN_TOKEN_CHARACTERS or not token.isascii() or not token.isprintable()
    ):
        raise UserError(
            f"the token has {len(token)} characters; use {MIN_TOKEN_CHARACTERS} or more printable ASCII"
            " characters, for example from `openssl rand -hex 16`"
        )
    if not _is_loopback(host) and not (is_public and (has_own_tokens or token is not None)):
        raise UserError(f"--host {host} is reached from other machines: add --public and a token")
    own = f"[{host}]" if ":" in host else host.lower()
    return Access(
        host=host, port=port, hosts=LOOPBACK_NAMES | {own} | {name.lower() for name in names}, token=token
    )


class Guard:
    """An ASGI app that passes on to another what `Access` and `Limits` allow.

    It reads a request's whole body first, so the app never sees the beginning of one that is too large.

    Example: Guard(app, settle_access(port=8400))
    """

    def __init__(self, app: ASGIApp, access: Access, limits: Limits | None = None) -> None:
        self._app, self._access, self._limits = app, access, limits or Limits()
        self.fault: BaseException | None = None  # of the app when it started or ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or hand it on."""
        if scope["type"] == "lifespan":

            async def send_short(message: Message) -> None:
                await send({**message, "message": ""})  # not the traceback: `fault` is raised

            try:
                await self._app(scope, receive, send_short)
            except Exception as error:
                self.fault = error
                raise
            return
        refused = self.find_fault(scope)
        if scope["type"] != "http":
            if refused is None:
                await self._app(scope, receive, send)
            else:
                await send({"type": "websocket.close", "code": 1008, "reason": refused[1]})
            return
        send = self._with_headers(send)
        if refused is None:
            body = await self._read_body(Headers(scope=scope), receive)
            if isinstance(body, bytes):
                await self._app(scope, _replay(body, receive), send)
                return
            refused = body
        else:
            await _drain(receive)
        headers = {"connection": "close"}  # the rest of a body is not read
        if refused[0] == HTTPStatus.UNAUTHORIZED:
            headers["www-authenticate"] = "Bearer"
        response = Response(describe_error(*refused), refused[0].value, headers, "application/json")
        await response(scope, receive, send)

    def find_fault(self, scope: Scope) -> tuple[HTTPStatus, str] | None:
        """Return why a request or a websocket is refused before its body is read, or None."""
        headers = Headers(scope=scope)
        hosts = [host.lower() for host in headers.getlist("host")]
        if len(hosts) != 1 or _name_of(hosts[0]) not in self._access.hosts:
            return HTTPStatus.MISDIRECTED_REQUEST, "this service does not answer to the name in Host"
        if scope["type"] == "websocket" or scope["method"] not in SAFE_METHODS:
            origins = headers.getlist("origin")
            if any(_site_of(origin) != hosts[0] for origin in origins):
                return HTTPStatus.FORBIDDEN, "the request comes from a page of another origin"
            if any(site not in OWN_SITES for site in headers.getlist("sec-fetch-site")):
                return HTTPStatus.FORBIDDEN, "the request comes from a page of another site"
        if scope["path"] not in self._limits.open_paths and not self._is_known(headers):
            return HTTPStatus.UNAUTHORIZED, "give the token as `Authorization: Bearer TOKEN`"
        return None

    def _is_known(self, headers: Headers) -> bool:
        token = self._access.token
        given = [one for one in headers.getlist("authorization") if one[:7].lower() == "bearer "]
        if token is None or len(given) != 1:
            return token is None
        return hmac.compare_digest(given[0][7:].strip().encode(), token.encode())

    async def _read_body(self, headers: Headers, receive: Receive) -> bytes | tuple[HTTPStatus, str]:
        most = self._limits.max_body_bytes
        too_large = HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body has more than {most} bytes"
        declared = headers.get("content-length", "0")
        if not (declared.isascii() and declared.isdigit()):
            return HTTPStatus.BAD_REQUEST, "Content-Length is no number"
        if int(declared[:20]) > most:
            await _drain(receive)
            return too_large
        body = bytearray()
        try:
            async with asyncio.timeout(self._limits.body_timeout_s):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        return HTTPStatus.BAD_REQUEST, "the body ends early"
                    body += message.get("body", b"")
                    if len(body) > most:
                        if message.get("more_body", False):
                            await _drain(receive)
                        return too_large
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            return HTTPStatus.REQUEST_TIMEOUT, f"the body took more than {self._limits.body_timeout_s:g} s"

    def _with_headers(self, send: Send) -> Send:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message.setdefault("headers", []))
                for name, value in self._limits.headers.items():
                    headers.setdefault(name, value)
            await send(message)

        return send_with_headers


async def _drain(receive: Receive) -> None:
    """Read on, within bounds: a connection that is closed while its client sends is reset."""
    num_bytes = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_S):
            while num_bytes < DRAINED_BYTES:
                message = await receive()
                if message["type"] != "http.request" or not message.get("more_body", False):
                    return
                num_bytes += len(message.get("body", b""))


def describe_error(status: HTTPStatus, message: str) -> bytes:
    """Return the JSON body of a refusal, in the form that OpenAI's clients read."""
    kind = status.phrase.lower().replace(" ", "_")
    return json.dumps({"error": {"message": message, "type": kind, "code": status.value}}).encode()


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body once, then whatever comes after it."""
    given: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return given.pop() if given else await receive()

    return receive_again


def _site_of(origin: str) -> str | None:
    """Return name and port in an Origin header; None where it is no address."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _name_of(host: str) -> str:
    """Return the name in a Host header without its port: "[::1]:80" gives "[::1]"."""
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def run_server(
    app: ASGIApp,
    access: Access,
    *,
    name: str,
    limits: Limits | None = None,
    listener: socket.socket | None = None,
    has_websockets: bool = False,
) -> None:
    """Serve until SIGINT or SIGTERM; requests at work then have GRACE_S seconds to end.

    `listener`: an open socket, for callers that must know the address before. The first line that is printed
    names the address, with the port that was taken for port 0.

    Raises:
        UserError: the address cannot be bound, or what the app opens cannot be used.
    """
    guard = Guard(app, access, limits)
    config = uvicorn.Config(
        guard,
        http="h11",
        ws="auto" if has_websockets else "none",
        lifespan="on",
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
    )
    with listener or open_socket(access) as opened:
        print(f"{name}: {name_address(opened)} (Ctrl-C ends it)", flush=True)
        with suppress(SystemExit):  # where the app does not start
            uvicorn.Server(config).run(sockets=[opened])
    fault = guard.fault
    while isinstance(fault, BaseExceptionGroup):
        fault = fault.exceptions[0]
    if fault is not None:
        raise fault


def name_address(listener: socket.socket) -> str:
    """Return the address of an open socket: "http://127.0.0.1:8400"."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def open_socket(access: Access) -> socket.socket:
    """Return a socket that listens at the address.

    Raises:
        UserError: the address is taken, unknown or not allowed.
    """
    family = socket.AF_INET6 if ":" in access.host else socket.AF_INET
    try:
        return socket.create_server((access.host, access.port), family=family, backlog=1024)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(
            f"cannot listen on {access.host} port {access.port}: {reason}; choose another --port"
        ) from None

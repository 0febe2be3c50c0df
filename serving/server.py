"""Runs a service of this layer behind its guard until it is interrupted or told to end."""

import socket
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

from roles.errors import UserError
from serving.guard import Access, Guard, Limits

GRACE_S = 30.0  # for requests at work when the service is told to end
KEEP_ALIVE_S = 15
MAX_CONNECTIONS = 1_000  # at once; one more is answered with 503


def run_server(
    app: ASGIApp,
    access: Access,
    *,
    name: str,
    limits: Limits | None = None,
    grace_s: float = GRACE_S,
    announce: Callable[[str], object] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM; requests at work then have `grace_s` seconds to end.

    The first line that is printed names the address, with the port that was taken for port 0; `announce` is
    then told it, as "http://127.0.0.1:8800".

    Raises:
        UserError: the address cannot be bound.
    """
    config = uvicorn.Config(
        Guard(app, access, limits),
        http="h11",
        ws="none",
        lifespan="on",
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=max(1, round(grace_s)),
    )
    with open_socket(access) as listener:
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{port}"
        print(f"{name}: {address} (Ctrl-C ends it)", flush=True)
        if announce is not None:
            announce(address)
        uvicorn.Server(config).run(sockets=[listener])


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

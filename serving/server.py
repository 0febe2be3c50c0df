"""Runs a service of this layer behind its guard until it is interrupted or told to end."""

import socket

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
    listener: socket.socket | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM; requests at work then have `grace_s` seconds to end.

    `listener`: an open socket, for callers that must know the address before. The first line that is printed
    names the address, with the port that was taken for port 0.

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
    with listener or open_socket(access) as opened:
        print(f"{name}: {name_address(opened)} (Ctrl-C ends it)", flush=True)
        uvicorn.Server(config).run(sockets=[opened])


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

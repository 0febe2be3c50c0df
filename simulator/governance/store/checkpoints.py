"""Opens the checkpointer of the governed graph: in the store itself, or in PostgreSQL.

Deserialisation is strict (what LANGGRAPH_STRICT_MSGPACK=true asks for): only plain types and LangGraph's own
come back, no pickle, whatever the environment says.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from roles.errors import InfrastructureError, UserError
from simulator.governance.store.checkpoint_saver import StoreSaver
from simulator.governance.store.database import Store

POSTGRES_SCHEMES = ("postgres://", "postgresql://")
POSTGRES_MODULE = "langgraph.checkpoint.postgres.aio"


def strict_serializer() -> JsonPlusSerializer:
    """Plain types and LangGraph's own only; anything else comes back as data, and no code is run."""
    return JsonPlusSerializer(pickle_fallback=False, allowed_json_modules=None, allowed_msgpack_modules=None)


@asynccontextmanager
async def open_checkpointer(url: str | None, store: Store) -> AsyncIterator[BaseCheckpointSaver[Any]]:
    """Open a checkpointer: None in the store, a postgres:// URL in that database.

    Raises:
        UserError: a URL of another kind, or no PostgreSQL driver installed.
    """
    if url is None:
        yield StoreSaver(store, serde=strict_serializer())
    else:
        async with _open_postgres(url) as saver:
            yield saver


@asynccontextmanager
async def _open_postgres(url: str) -> AsyncIterator[BaseCheckpointSaver[Any]]:
    scheme = url.split("://")[0]
    if not url.startswith(POSTGRES_SCHEMES):
        raise UserError(f"checkpoints at {scheme!r}: give a path, or a URL that begins with postgresql://")
    try:
        saver_class = import_module(POSTGRES_MODULE).AsyncPostgresSaver
        server_error = import_module("psycopg").Error
    except ImportError:
        raise UserError(
            f"checkpoints at {scheme!r} need a driver; run: pip install 'emads[postgres]'"
        ) from None
    is_open = False
    try:
        async with saver_class.from_conn_string(url, serde=strict_serializer()) as saver:
            await saver.setup()
            is_open = True
            yield saver
    except server_error as error:
        reason = str(error).splitlines()[0]
        if is_open:
            raise InfrastructureError(f"the PostgreSQL server failed: {reason}") from error
        raise UserError(f"checkpoints at {scheme!r}: {reason}") from None

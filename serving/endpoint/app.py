"""The whole endpoint as one app: OpenAI, MCP, A2A, health, metrics, and what starts and ends with it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from fastapi import FastAPI, Response

from serving.endpoint.a2a_agent import FileTaskStore, GovernedTables, TeamExecutor, make_card
from serving.endpoint.mcp_server import make_mcp_app
from serving.endpoint.openai_api import make_openai_routes
from serving.endpoint.tables import CONTENT_TYPE, Tables
from serving.guard import Limits
from simulator.governance.runner import open_services

A2A_PATH = "/a2a"
HEALTH = "/health"
LIMITS = Limits(open_paths=frozenset({HEALTH}))
IDLE_TASK_S = 1.0  # after which a task at the gate is no longer held in memory


def _is_told_once(record: logging.LogRecord) -> bool:
    """Leave out the traceback of a request that cannot be read: the A2A library says why in its next line."""
    return not (record.exc_info and str(record.msg).startswith("Failed to"))


logging.getLogger("a2a.server.routes.jsonrpc_dispatcher").addFilter(_is_told_once)


@dataclass(frozen=True, slots=True, kw_only=True)
class Governance:
    """Store of governed tasks, and the reviewers who may rule on them.

    Example: Governance(store=Path("company.db"), key=key, reviewers={"ann": token})
    """

    store: Path | None  # SQLite file; None: in memory, lost at the end
    key: bytes  # of the store's seals
    reviewers: Mapping[str, str] = field(default_factory=dict)  # name -> token of that person


def make_app(tables: Tables, name: str, governance: Governance, *, url: str, version: str = "0") -> FastAPI:
    """Return the app of a team that is called `name`; `url` is where clients reach it."""
    mcp_app = make_mcp_app(tables, name)

    @asynccontextmanager
    async def live(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(mcp_app.router.lifespan_context(mcp_app))
            services = await stack.enter_async_context(open_services(governance.store, key=governance.key))
            folder = governance.store and governance.store.with_name(f"{governance.store.name}.tasks")
            store = FileTaskStore(folder)
            await store.load()
            governed = GovernedTables(tables, services, governance.reviewers)
            executor = TeamExecutor(tables, governed, store)
            card = make_card(tables.team, name, f"{url}{A2A_PATH}", version=version)
            handler = DefaultRequestHandler(
                agent_executor=executor,
                task_store=store,
                agent_card=card,
                interrupted_task_timeout=IDLE_TASK_S,
            )
            routes: list[Any] = [
                *create_agent_card_routes(card),
                *create_jsonrpc_routes(handler, A2A_PATH, enable_v0_3_compat=True),
            ]
            app.router.routes[0:0] = routes
            stack.push_async_callback(handler.aclose)
            resuming = asyncio.create_task(executor.resume_all())
            stack.push_async_callback(_end, resuming)
            yield

    app = FastAPI(title=f"emads {name}", lifespan=live, docs_url=None, redoc_url=None)
    app.include_router(make_openai_routes(tables, name))

    @app.get(HEALTH)
    async def health() -> dict[str, Any]:
        metrics = tables.metrics
        return {"status": "ok", "team": name, "active": metrics.num_active, "waiting": metrics.num_waiting}

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(tables.metrics.render(), media_type=CONTENT_TYPE)

    app.mount("/", mcp_app)
    return app


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task

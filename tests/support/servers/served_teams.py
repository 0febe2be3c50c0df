"""An endpoint in this process, and its three kinds of client on the same app."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import httpx2
import openai
from a2a.client import Client as A2AClient
from a2a.client import ClientCallContext, ClientConfig, create_client
from a2a.helpers import get_data_parts, get_message_text, new_data_message, new_text_message
from a2a.types import GetTaskRequest, Role, SendMessageConfiguration, SendMessageRequest, Task, TaskState
from fastapi import FastAPI
from mcp import Client as MCPClient
from mcp.client.streamable_http import streamable_http_client

from emads import load_team
from scenarios.team.playable import PlayableCase
from serving.endpoint.app import Governance, make_app
from serving.endpoint.tables import Tables

URL = "http://127.0.0.1:8400"
CASE = (Path(__file__).parents[3] / "examples/card-payments.yaml").read_text()
KEY = b"k" * 32
ANN, ANNS_TOKEN = "ann", "anns-own-token-0123"


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A running endpoint and ways to call it."""

    app: FastAPI
    tables: Tables

    def openai(self) -> openai.AsyncOpenAI:
        http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=self.app), base_url=URL)
        return openai.AsyncOpenAI(base_url=f"{URL}/v1", api_key="none", http_client=http, max_retries=0)

    def mcp(self) -> MCPClient:
        http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=self.app), base_url=URL)
        return MCPClient(streamable_http_client(f"{URL}/mcp", http_client=http))

    def http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.ASGITransport(app=self.app), base_url=URL)

    async def a2a(self) -> "Agent":
        return await meet_agent(URL, self.http())


@asynccontextmanager
async def serve_scripted(
    *, store: Path | None = None, most_at_once: int = 16, most_waiting: int = 256
) -> AsyncIterator[Served]:
    """The scripted team as model `demo`; ann may rule."""
    team = load_team("scripted")
    known: list[PlayableCase] = [team.draw_case(0)]
    with team.serve(known) as engine:
        tables = Tables(team, engine, known=known, most_at_once=most_at_once, most_waiting=most_waiting)
        governance = Governance(store=store, key=KEY, reviewers={ANN: ANNS_TOKEN})
        app = make_app(tables, "demo", governance, url=URL)
        async with app.router.lifespan_context(app):
            yield Served(app=app, tables=tables)


async def meet_agent(url: str, http: httpx.AsyncClient) -> "Agent":
    """The client of the agent whose card stands at this address."""
    return Agent(await create_client(url, client_config=ClientConfig(httpx_client=http, streaming=True)))


class Agent:
    """What an A2A client does with a case: send it, look at its task, send a ruling."""

    def __init__(self, client: A2AClient) -> None:
        self._client = client

    async def send_case(self, text: str = CASE) -> tuple[str, list[str]]:
        """The id of the task, and the names of the states that it went through."""
        task, states = "", []
        request = SendMessageRequest(message=new_text_message(text, role=Role.ROLE_USER))
        async for event in self._client.send_message(request):
            if event.HasField("task"):
                task = event.task.id
                states.append(TaskState.Name(event.task.status.state))
            if event.HasField("status_update"):
                states.append(TaskState.Name(event.status_update.status.state))
        return task, list(dict.fromkeys(states))

    async def send_quietly(self, text: str = CASE) -> str:
        """The id of the task; it is played while nobody listens."""
        wanted = SendMessageConfiguration(return_immediately=True)
        message = new_text_message(text, role=Role.ROLE_USER)
        async for event in self._client.send_message(
            SendMessageRequest(message=message, configuration=wanted)
        ):
            if event.HasField("task"):
                return event.task.id
        raise AssertionError("no task")

    async def look(self, task: str) -> Task:
        return await self._client.get_task(GetTaskRequest(id=task))

    async def state(self, task: str) -> str:
        return str(TaskState.Name((await self.look(task)).status.state))

    async def rule(self, task: str, *, token: str | None = ANNS_TOKEN, **changed: Any) -> tuple[str, str]:
        """Send ann's approval of what the task shows; the state after it, and what the agent says."""
        at_gate = await self.look(task)
        (shown,) = get_data_parts(at_gate.status.message.parts)
        ruling = {
            "interrupt_id": shown["interrupt_id"],
            "digest": shown["digest"],
            "reviewer": ANN,
            "decision": "approve",
            **changed,
        }
        message = new_data_message(ruling, task_id=task, context_id=at_gate.context_id, role=Role.ROLE_USER)
        headers = {} if token is None else {"x-reviewer-token": token}
        context = ClientCallContext(service_parameters=headers)
        said = ("", "")
        async for event in self._client.send_message(SendMessageRequest(message=message), context=context):
            if event.HasField("status_update"):
                status = event.status_update.status
                said = (TaskState.Name(status.state), get_message_text(status.message))
        return said

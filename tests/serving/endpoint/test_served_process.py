"""A real `emads serve`: three kinds of client over HTTP, many at once, killed and ended."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from mcp import Client as MCPClient
from served_teams import ANN, ANNS_TOKEN, CASE, meet_agent
from table_server import write_transcript
from teacher_server import say
from teacher_server import serve as serve_model

pytestmark = pytest.mark.process
TOKEN = "a-token-of-callers-1"
CASES = 64


@contextmanager
def serving(*arguments: str, token: str | None = None) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """Run `emads serve` until the block ends; yields its address and the process."""
    environment = os.environ | {"ANNS": ANNS_TOKEN} | ({} if token is None else {"CALLERS": token})
    command = [
        sys.executable,
        "-m",
        "emads.cli",
        "serve",
        *arguments,
        "--port",
        "0",
        "--reviewer",
        f"{ANN}=ANNS",
    ]
    command += [] if token is None else ["--token-env", "CALLERS"]
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        found = re.search(r"http://\S+(?= \(Ctrl-C)", first)
        assert found, first + process.stdout.read()
        yield found[0], process
    finally:
        process.kill()
        process.wait(30)


def wait_for_health(url: str) -> None:
    for _ in range(1200):
        try:
            if httpx.get(f"{url}/health").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise AssertionError("the server never answered")


def test_three_kinds_of_client_and_64_decisions_at_once_none_lost() -> None:
    with serving("scripted", token=TOKEN) as (url, _):
        wait_for_health(url)
        assert httpx.get(f"{url}/v1/models").status_code == 401
        assert httpx.get(f"{url}/health", headers={"Host": "evil.example"}).status_code == 421
        plain = openai.OpenAI(base_url=f"{url}/v1", api_key=TOKEN, max_retries=0)
        asked: dict[str, Any] = {"model": "scripted", "messages": [{"role": "user", "content": CASE}]}
        assert "Votes" in (plain.chat.completions.create(**asked).choices[0].message.content or "")
        streamed = list(plain.chat.completions.create(**asked, stream=True))
        assert len(streamed) > 10

        async def run() -> list[str]:
            many = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=TOKEN, max_retries=0)
            calls = [
                many.chat.completions.create(
                    model="scripted", messages=[{"role": "user", "content": f"# case {number}\n{CASE}"}]
                )
                for number in range(CASES)
            ]
            replies = await asyncio.gather(*calls)
            headers = {"Authorization": f"Bearer {TOKEN}"}
            async with httpx.AsyncClient(headers=headers) as http:
                _, states = await (await meet_agent(url, http)).send_case()
                assert states[-1] == "TASK_STATE_INPUT_REQUIRED"
            return [reply.id for reply in replies]

        assert len(set(asyncio.run(run()))) == CASES
        metrics = httpx.get(f"{url}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}).text
        assert f'emads_jobs_total{{kind="decision",outcome="done"}} {CASES + 2}' in metrics
    with serving("scripted") as (url, _):  # MCP's own client, with its own connection

        async def decide() -> Any:
            async with MCPClient(f"{url}/mcp") as client:
                return (await client.call_tool("decide", {"case": CASE})).structured_content

        assert asyncio.run(decide())["decision"]["option"] == "B"


def test_kill_9_in_the_middle_of_a_governed_case_and_after_a_restart_it_goes_on(tmp_path: Path) -> None:
    """The CTO's endpoint holds its answer while the server is killed; other seats are not asked again."""
    asked, release = threading.Event(), threading.Event()
    seats: list[str] = []

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        seats.append("cto")
        asked.set()
        release.wait(60)
        reports = '{"offers": [], "needs": ["A"], "veto": []}'
        return say(
            '{"vote": "accept", "reason": "fine"}' if "vote" in write_transcript(body)[-600:] else reports
        )

    store = tmp_path / "company.db"
    with serve_model(answer) as server:
        seats_of = ("--seat", "all=scripted", "--seat", f"cto=openai:m@{server.url}", "--db", str(store))

        async def send(url: str) -> str:
            async with httpx.AsyncClient(timeout=60) as http:
                agent = await meet_agent(url, http)
                return await agent.send_quietly()

        with serving(*seats_of) as (url, process):
            wait_for_health(url)
            task = asyncio.run(send(url))
            assert asked.wait(60)
            process.send_signal(signal.SIGKILL)
            process.wait(30)
        release.set()

        async def finish(url: str) -> tuple[str, str]:
            async with httpx.AsyncClient(timeout=60) as http:
                agent = await meet_agent(url, http)
                for _ in range(300):
                    if await agent.state(task) == "TASK_STATE_INPUT_REQUIRED":
                        return await agent.rule(task)
                    await asyncio.sleep(0.1)
                return await agent.state(task), "never reached the gate"

        with serving(*seats_of) as (url, process):
            wait_for_health(url)
            state, said = asyncio.run(finish(url))
    assert state == "TASK_STATE_COMPLETED", said


def test_sigterm_lets_a_decision_end_and_takes_no_new_one() -> None:
    asked, release = threading.Event(), threading.Event()

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        asked.set()
        release.wait(60)
        return say('{"offers": [], "needs": [], "veto": []}')

    with (
        serve_model(answer) as server,
        serving("--seat", "all=scripted", "--seat", f"cto=openai:m@{server.url}") as (
            url,
            process,
        ),
    ):
        wait_for_health(url)
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0)
        found: list[str] = []

        def decide() -> None:
            reply = client.chat.completions.create(model="team", messages=[{"role": "user", "content": CASE}])
            found.append(reply.choices[0].message.content or "")

        caller = threading.Thread(target=decide)
        caller.start()
        assert asked.wait(60)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{url}/health")
        release.set()
        caller.join(60)
        assert "Votes" in found[0]
        assert process.wait(60) in (0, -signal.SIGTERM)

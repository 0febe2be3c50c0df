"""R11: faults of an endpoint, each kind many times: the reply or a named failure, and nothing hangs."""

import asyncio
import time

import pytest
from teacher_server import NAMED, TeacherServer, serve
from trial_counts import num_trials

from simulator.engines.openai.client import ChatClient
from simulator.engines.openai.endpoint import EndpointSettings
from simulator.engines.openai.reply import EndpointError


def ask(server: TeacherServer, count: int, *, num_retries: int, timeout_s: float) -> list[str]:
    """Send requests one after another; the kind of each failure, "" for a reply."""
    settings = EndpointSettings(
        url=server.url,
        model="tiny",
        timeout_s=timeout_s,
        backoff_s=0.001,
        max_wait_s=0.1,
        max_retries=num_retries,
    )

    async def ask_all() -> list[str]:
        found = []
        async with ChatClient(settings) as client:
            for _ in range(count):
                try:
                    reply = await client.complete([{"role": "user", "content": "go"}], [])
                    found.append("" if reply.text == "done" else f"said {reply.text!r}")
                except EndpointError as error:
                    found.append(error.kind)
        return found

    return asyncio.run(ask_all())


@pytest.mark.slow
@pytest.mark.parametrize("kind", NAMED)
def test_every_request_ends_in_its_reply_or_the_failure_of_its_fault(kind: str) -> None:
    half, name = num_trials(2, 100), NAMED[kind]
    start, timeout_s = time.monotonic(), 0.5 if name == "timeout" else 5.0
    with serve(lambda _body: {"role": "assistant", "content": "done"}) as server:
        server.faults = [kind] * half
        assert ask(server, half, num_retries=0, timeout_s=timeout_s) == [name] * half
        server.faults = [kind, None] * half
        assert ask(server, half, num_retries=1, timeout_s=timeout_s) == [""] * half
    assert time.monotonic() - start < 10 + 2 * half

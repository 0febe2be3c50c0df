"""Many reviewers at once, and a server that is killed: every ruling that was confirmed counts, once."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest
from review_site import Site, find_form_tokens, make_item, open_site

from reliability.governed.cases import KEY, draw_cases, make_seating, worlds
from serving.review.room import make_token
from simulator.governance.reviewers import AbsentReviewer
from simulator.governance.runner import open_services, play_governed
from simulator.governance.seals import KEY_VARIABLE

NUM_REVIEWERS = 50
ROOT = Path(__file__).parent.parent.parent.parent


async def rule_on_all(site: Site, name: str) -> Counter[tuple[str, int]]:
    """One reviewer tries to rule on everything at once; (request, status) of each try."""
    browser = await site.signed_in(name)
    requests = site.list_open()
    for request in requests:
        await browser.open(f"/approvals/{request.interrupt_id}")
    found: Counter[tuple[str, int]] = Counter()
    for request in requests:
        path = f"/approvals/{request.interrupt_id}"
        answer = await browser.send(path, digest=request.digest, ruling="approve")
        found[request.interrupt_id, answer.status_code] += 1
    return found


@pytest.mark.slow
def test_fifty_reviewers_on_one_inbox_lose_and_double_no_ruling(tmp_path: Path) -> None:
    names = [f"reviewer {number}" for number in range(NUM_REVIEWERS)]
    items = [make_item(number) for number in range(2)]

    async def run() -> None:
        async with open_site(tmp_path, num_cases=3, reviewers=names, items=items) as site:
            requests = [request.interrupt_id for request in site.list_open()]
            tried: Counter[tuple[str, int]] = Counter()
            for found in await asyncio.gather(*(rule_on_all(site, name) for name in names)):
                tried += found
            for interrupt_id in requests:
                assert tried[interrupt_id, 303] == 1
            assert {status for _, status in tried} <= {303, 403, 409}
            answers = site.room.services.log.store.execute(
                "SELECT json_extract(body, '$.interrupt_id') FROM decision_log"
                " WHERE kind IN ('approved', 'edited', 'rejected')"
            ).fetchall()
            assert sorted(one for (one,) in answers) == sorted(requests)
            signed = [one for one in site.room.audit.read() if one.body["outcome"] == "kept"]
            assert sorted(one.thread for one in signed) == sorted(requests)
            await asyncio.gather(*(judge(site, name) for name in names))
            labels = site.room.list_labels()
            assert Counter((one.item, one.reviewer) for one in labels).most_common(1)[0][1] == 1
            assert len(labels) == len(items)  # one label each is wanted
            episodes = await site.play()
            assert all(episode.status.startswith("completed") for episode in episodes) or site.list_open()

    async def judge(site: Site, name: str) -> None:
        browser = await site.signed_in(name)
        for item in items:
            await browser.open(f"/answers/{item.id}")
            await browser.send(f"/answers/{item.id}", action="approve")

    asyncio.run(run())


def make_store(path: Path, num_cases: int) -> list[tuple[str, str]]:
    """Cases that wait at the gate in a file store; (request, digest) of each."""

    async def play() -> list[tuple[str, str]]:
        cases = draw_cases(num_cases)
        async with open_services(path, key=KEY) as services:
            await play_governed(
                cases, services, make_seating(cases), AbsentReviewer(), worlds(shock_share=0.0)
            )
            return [(one.interrupt_id, one.digest) for one in services.gate.list_open()]

    return asyncio.run(play())


def start_server(store: Path) -> tuple[subprocess.Popen[str], str]:
    """The app as its users start it, and its address."""
    call = [sys.executable, "-m", "emads.cli", "review", str(store), "--port", "0"]
    for name in ("ann", "ben"):
        call += ["--reviewer", name]
    environment = {**os.environ, KEY_VARIABLE: KEY.hex(), "PYTHONPATH": str(ROOT)}
    server = subprocess.Popen(call, stdout=subprocess.PIPE, text=True, env=environment)
    assert server.stdout is not None
    line = next((line for line in server.stdout if line.startswith("review: http://")), "")
    assert line, "the server did not start"
    return server, line.split()[1]


def rule_until_it_dies(
    address: str, name: str, requests: list[tuple[str, str]], confirmed: list[str]
) -> None:
    """Approve one request after the other; those that the server confirmed are added to `confirmed`."""
    with httpx.Client(base_url=address, headers={"origin": address}, timeout=60) as client:
        try:
            given = find_form_tokens(client.get("/sign-in").text)["/sign-in"]
            client.post("/sign-in", data={"form_token": given, "token": make_token(KEY, name)})
            for interrupt_id, digest in requests:
                path = f"/approvals/{interrupt_id}"
                given = find_form_tokens(client.get(path).text).get(path, "")
                fields = {"form_token": given, "digest": digest, "ruling": "approve"}
                if given and client.post(path, data=fields).status_code == 303:
                    confirmed.append(interrupt_id)
        except httpx.TransportError:
            return


@pytest.mark.process
def test_a_server_that_is_killed_loses_no_ruling_that_it_confirmed(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    requests = make_store(store, 12)
    confirmed: list[str] = []
    for delay_s in (0.3, 0.5, None):  # the last server is let alone until all is ruled
        server, address = start_server(store)
        people = [
            threading.Thread(target=rule_until_it_dies, args=(address, name, order, confirmed))
            for name, order in (("ann", requests), ("ben", requests[::-1]))
        ]
        for person in people:
            person.start()
        if delay_s is not None:
            before = len(confirmed)
            while len(confirmed) == before and any(person.is_alive() for person in people):
                time.sleep(0.01)
            time.sleep(delay_s)
            server.send_signal(signal.SIGKILL)
        for person in people:
            person.join()
        server.terminate()
        server.wait()
    assert len(confirmed) == len(set(confirmed))

    async def read() -> tuple[list[str], list[str]]:
        cases = draw_cases(12)
        async with open_services(store, key=KEY) as services:
            answered = [one for one, _ in requests if services.gate.find_answer(one) is not None]
            played = await play_governed(
                cases, services, make_seating(cases), AbsentReviewer(), worlds(shock_share=0.0)
            )
            return answered, [episode.status for episode in played]

    answered, statuses = asyncio.run(read())
    assert set(confirmed) <= set(answered)
    assert sorted(answered) == sorted(one for one, _ in requests)
    assert "violation" not in statuses

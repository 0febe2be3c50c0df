"""Requests that schemathesis draws from the app's own description: none is accepted, none is our error."""

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from review_site import ORIGIN, Browser, Site, ask_seat, make_item, open_site
from schemathesis.core.result import Ok
from test_review_guard import OPEN, find_changes

from serving.review.room import make_token

FORM = "application/x-www-form-urlencoded"
FIELDS = {  # of all forms together; every one may also be absent, or any other text
    "ruling": ["approve", "edit", "reject"],
    "option": ["A", "B", "none"],
    "action": ["approve", "reject", "left", "right", "neither", "correct"],
    "form": ["report", "reply", "vote", "measure"],
    "vote.vote": ["accept", "object"],
    "report.offers.0.cost": ["9", "nine", "-1", "1e9"],
    "answer.fund": ["cto", "risk"],
    **{name: [] for name in ("token", "digest", "feedback", "reason", "answer.option", "form_token")},
}


def describe(site: Site, *, is_known: bool = False) -> dict[str, Any]:
    """The app's OpenAPI description, with what its forms hold and names of what is there, or others."""
    (request,) = site.list_open()
    site.room.seats.ask(ask_seat())
    known = {
        "interrupt_id": request.interrupt_id,
        "item_id": make_item().id,
        "turn_id": ask_seat().id,
        "name": "review.css",
    }
    found: dict[str, Any] = json.loads(json.dumps(site.app._app.openapi()))  # type: ignore[attr-defined]
    texts = {name: {"anyOf": [{"enum": [*words, ""]}, {"type": "string"}]} for name, words in FIELDS.items()}
    for operations in found["paths"].values():
        for method, operation in operations.items():
            for parameter in operation.get("parameters", ()):
                one = known[parameter["name"]]
                others = [] if is_known else [{"type": "string", "minLength": 1}]
                parameter["schema"] = {"anyOf": [{"enum": [one]}, *others]}
            if method == "post":
                schema = {"type": "object", "properties": texts}
                operation["requestBody"] = {"content": {FORM: {"schema": schema}}, "required": True}
    return found


def send_drawn(loop: asyncio.Runner, site: Site, browser: Browser, *, with_token: bool, count: int) -> Any:
    """Send what is drawn; returns the (path, method, status) of every reply."""
    schema = schemathesis.openapi.from_dict(describe(site, is_known=with_token))
    operations = []
    for found in schema.get_all_operations():
        assert isinstance(found, Ok), found
        operations.append(found.ok())
    replies: list[tuple[str, str, int]] = []

    async def send(case: Any, body: Any) -> None:
        path = case.formatted_path
        if with_token and case.method == "POST":
            await browser.sign_in(make_token(site.room.key, "ann"))  # it may have signed out
            await browser.open("/" if path == "/sign-out" else path)
            body = {
                **(body if isinstance(body, dict) else {}),
                "form_token": browser.form_tokens.get(path, ""),
            }
        data = body if isinstance(body, dict) else None
        answer = await browser.client.request(case.method, path, data=data, headers={"origin": ORIGIN})
        replies.append((case.path, case.method, answer.status_code))

    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def fuzz(data: Any) -> None:
        for operation in operations:
            case = data.draw(operation.as_strategy())
            loop.run(send(case, case.body))

    fuzz()
    return replies


def on_fuzzed_site(folder: Path, count: int, play: Any) -> None:
    with asyncio.Runner() as loop:
        opened = open_site(folder, items=[make_item()])
        site = loop.run(opened.__aenter__())
        try:
            play(loop, site, count)
        finally:
            leave: Coroutine[Any, Any, Any] = opened.__aexit__(None, None, None)
            loop.run(leave)


def fuzz_strangers(loop: asyncio.Runner, site: Site, count: int) -> None:
    """Nobody is signed in: only the pages before the sign-in are shown."""
    replies = send_drawn(loop, site, site.browser(), with_token=False, count=count)
    assert {path for path, _, _ in replies} == set(describe(site)["paths"])
    for path, method, status in replies:
        assert 400 <= status < 500 or (path in OPEN and method == "GET"), (path, method, status)
    assert find_changes(site) == (0, 0, 0)


def fuzz_forms(loop: asyncio.Runner, site: Site, count: int) -> None:
    """A signed-in browser sends forms without the token of their page: all are turned away."""
    ann = loop.run(site.signed_in("ann"))
    replies = send_drawn(loop, site, ann, with_token=False, count=count)
    assert all(400 <= status < 500 for _, method, status in replies if method == "POST")
    assert all(status < 500 for _, _, status in replies)
    assert find_changes(site) == (0, 0, 0)


def fuzz_values(loop: asyncio.Runner, site: Site, count: int) -> None:
    """With the right token any values may come: no error of ours, and no ruling without the page's digest."""
    ann = loop.run(site.signed_in("ann"))
    replies = send_drawn(loop, site, ann, with_token=True, count=count)
    assert all(status < 500 for _, _, status in replies)
    assert any(status == 422 for _, method, status in replies if method == "POST")
    assert find_changes(site)[0] == 0


PLAYS = (fuzz_strangers, fuzz_forms, fuzz_values)


@pytest.mark.parametrize("play", PLAYS)
def test_drawn_requests(play: Any, tmp_path: Path) -> None:
    on_fuzzed_site(tmp_path, 4, play)


@pytest.mark.slow
@pytest.mark.parametrize("play", PLAYS)
def test_many_drawn_requests(play: Any, tmp_path: Path) -> None:
    on_fuzzed_site(tmp_path, 100, play)

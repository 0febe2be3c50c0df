"""Every route and method: no session, another origin or host, no token of the form; all are turned away."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from fastapi.routing import APIRoute
from html_pages import ATTACKS, Page
from review_site import ORIGIN, Browser, Site, ask_seat, find_form_tokens, make_item, open_site

from serving.review.app import MAX_FORM_BYTES
from serving.review.room import COOKIE, make_form_token, make_token, open_session, write_cookie

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
OPEN = ("/sign-in", "/static/{name}")  # what people see before they sign in
KNOWN = {"name": "review.css"}


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[tuple[Site, list[tuple[str, str]]]]:
    async with open_site(folder, items=[make_item()]) as site:
        (request,) = site.list_open()
        turn = ask_seat()
        site.room.seats.ask(turn)
        known = {**KNOWN, "interrupt_id": request.interrupt_id, "item_id": make_item().id, "turn_id": turn.id}
        yield site, list_routes(site, known)


def list_routes(site: Site, known: dict[str, str]) -> list[tuple[str, str]]:
    """(path as declared, path of something that is there) of every route."""
    routes = site.app._app.routes  # type: ignore[attr-defined]
    declared = dict.fromkeys(route.path for route in routes if isinstance(route, APIRoute))
    return [(path, path.format_map(known)) for path in declared]


def find_changes(site: Site) -> tuple[int, int, int]:
    """Answers that were signed, labels that were kept and turns of seats that were answered."""
    count = site.room.services.log.store.execute(
        "SELECT count(*) FROM decision_log WHERE kind IN ('approved', 'edited', 'rejected')"
    ).fetchone()[0]
    seats = site.room.seats
    return count, len(site.room.list_labels()), sum(map(bool, map(seats.find_answer, seats.list_turns())))


async def ask(
    browser: Browser, method: str, path: str, headers: dict[str, str], **fields: str
) -> httpx.Response:
    given = {"origin": ORIGIN, **headers} if method not in ("GET", "HEAD") else headers
    data = fields if method in ("POST", "PUT", "PATCH", "DELETE") else None
    return await browser.client.request(method, path, headers=given, data=data)


def a_form(site: Site, path: str, token: str) -> dict[str, str]:
    """Fields that would be accepted at any path."""
    (request,) = site.list_open()
    ruling = {"ruling": "approve", "digest": request.digest}
    label = {"action": "approve", "reason": "good", "token": make_token(site.room.key, "ann")}
    turn = {"form": "vote", "vote.vote": "accept"}
    return {**ruling, **label, **turn, "form_token": token}


@pytest.mark.parametrize("method", METHODS)
def test_no_route_answers_without_a_session_or_with_a_forged_one(method: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as (site, routes):
            ended = open_session("ann", 0)
            gone = open_session("zoe", 1e10)
            cookies = {
                "none": "",
                "garbage": "a.b.c.d",
                "another key's": write_cookie(b"o" * 32, open_session("ann", 1e10)),
                "an ended one": write_cookie(site.room.key, ended),
                "of somebody who may not sign in": write_cookie(site.room.key, gone),
                "not signed in": write_cookie(site.room.key, open_session("", 1e10)),
                "too long": "a" * 3_000,
            }
            for declared, path in routes:
                for name, cookie in cookies.items():
                    browser = site.browser()
                    browser.client.cookies.set(COOKIE, cookie)
                    token = make_form_token(site.room.key, open_session("ann", 1e10), path)
                    answer = await ask(browser, method, path, {}, **a_form(site, path, token))
                    is_open = declared in OPEN and method == "GET"
                    assert (answer.status_code == 200) == is_open, (method, path, name)
                    assert answer.status_code < 500
            assert find_changes(site) == (0, 0, 0)

    asyncio.run(run())


def test_forms_from_elsewhere_and_without_their_token_are_refused(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as (site, routes):
            ann, ben = await site.signed_in("ann"), await site.signed_in("ben")
            num_tried = 0
            for _, path in routes:
                for browser in (ann, ben):
                    await browser.open(path)
                page = "/" if path == "/sign-out" else path
                await ann.open(page)
                token = ann.form_tokens.get(path)
                if token is None:
                    continue
                other = ben.form_tokens.get(path, "0" * 64)
                elsewhere = next(given for where, given in ann.form_tokens.items() if where != path)
                form = a_form(site, path, token)
                tried: list[tuple[dict[str, str], dict[str, str]]] = [
                    ({"origin": "http://evil.example"}, form),
                    ({"origin": "null"}, form),
                    ({"origin": "http://127.0.0.1:9"}, form),
                    ({"sec-fetch-site": "cross-site"}, form),
                    ({"sec-fetch-site": "same-site"}, form),
                    ({"host": "evil.example"}, form),
                    ({"host": ""}, form),
                    ({"content-type": "text/plain"}, form),
                    ({"content-type": "multipart/form-data; boundary=x"}, form),
                    ({}, {**form, "form_token": ""}),
                    ({}, {name: value for name, value in form.items() if name != "form_token"}),
                    ({}, {**form, "form_token": other}),
                    ({}, {**form, "form_token": elsewhere}),
                    ({}, {**form, "form_token": token[:-1]}),
                    ({}, {**form, "reason": "a" * MAX_FORM_BYTES}),
                    ({}, {**form, **{f"more{number}": "" for number in range(2_001)}}),
                ]
                for headers, fields in tried:
                    answer = await ask(ann, "POST", path, headers, **fields)
                    assert 400 <= answer.status_code < 500, (path, headers, answer.status_code)
                    num_tried += 1
                bare = await ann.client.post(path, data=form)
                assert bare.status_code == 403
            assert num_tried == 5 * 16
            assert find_changes(site) == (0, 0, 0)

    asyncio.run(run())


def test_a_signed_in_reviewer_still_finds_no_other_doors(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as (site, _):
            ann = await site.signed_in("ann")
            for path in (
                "/static/../app.py",
                "/static/..%2fapp.py",
                "/static/%2e%2e/%2e%2e/pyproject.toml",
                "/static/review.css%00",
                "/approvals/' OR 1=1 --",
                "/approvals/" + "a" * 5_000,
                "/answers/%ff%fe",
                "/openapi.json",
                "/docs",
                "/rows?state=x",
                "/?kind=%27",
                "/?words=%F0%9F%92%A9%00&state=",
                "/?state=waiting&state=done",
            ):
                answer = await ann.open(path)
                assert answer.status_code in (200, 400, 404), (path, answer.status_code)
                assert "secret" not in answer.text
                assert "root:" not in answer.text
            for body in (b"form_token=%ff", b"\xff\xfe", b"a" * 10, b""):
                answer = await ann.client.post(
                    "/sign-out",
                    content=body,
                    headers={"origin": ORIGIN, "content-type": "application/x-www-form-urlencoded"},
                )
                assert answer.status_code in (400, 403)

    asyncio.run(run())


def test_every_reply_carries_the_policy_and_no_page_has_inline_code(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as (site, routes):
            ann = await site.signed_in("ann")
            for _, path in routes:
                answer = await ann.open(path)
                policy = answer.headers["content-security-policy"]
                assert "script-src 'self'" in policy
                assert "unsafe" not in policy
                assert "frame-ancestors 'none'" in policy
                assert answer.headers["x-content-type-options"] == "nosniff"
                if not answer.headers.get("content-type", "").startswith("text/html"):
                    continue
                page = Page(answer.text)
                assert all(attributes.get("src") for attributes in page.named("script"))
                assert "style" not in page.tags
                names = {name for _, name, _ in page.attributes}
                assert not [name for name in names if name.startswith("on") or name == "style"]
            cookie = (await site.browser().open("/sign-in")).headers["set-cookie"]
            assert "HttpOnly" in cookie
            assert "SameSite=strict" in cookie

    asyncio.run(run())


def test_what_models_wrote_never_becomes_markup(tmp_path: Path) -> None:
    async def run() -> None:
        hostile = " ".join(ATTACKS)
        item = make_item(
            answers=(hostile, f'{{"option": "{ATTACKS[0]}", "fund": [], "escalate": false}}'),
            title=hostile,
            table=hostile,
            briefs={"cto": hostile},
            reports={hostile: hostile},
            votes={"cto": hostile},
            decisions={hostile: 1},
        )
        async with open_site(tmp_path, num_cases=0, items=[item]) as site:
            ann = await site.signed_in("ann")
            for path in ("/", f"/answers/{item.id}"):
                answer = await ann.open(path)
                assert answer.status_code == 200
                page = Page(answer.text)
                assert "img" not in page.tags
                assert all(attributes.get("src") for attributes in page.named("script"))
                assert "7 * 7" in page.text
                assert "\x1b" not in answer.text
                assert "\u202e" not in answer.text

    asyncio.run(run())


def test_a_sign_in_opens_a_new_session_and_tokens_do_not_work_for_others(tmp_path: Path) -> None:
    async def run() -> None:
        async with open_site(tmp_path, num_cases=0) as site:
            browser = site.browser()
            await browser.open("/sign-in")
            before = browser.client.cookies[COOKIE]
            await browser.send("/sign-in", token=make_token(site.room.key, "ann"))
            assert browser.client.cookies[COOKIE] != before
            page = await browser.open("/")
            assert ">ann<" in page.text
            assert find_form_tokens(page.text)["/sign-out"]
            assert (await browser.send("/sign-out")).status_code == 303
            assert (await browser.open("/")).status_code == 401

    asyncio.run(run())


def test_a_session_that_was_signed_out_opens_nothing_in_another_browser(tmp_path: Path) -> None:
    """A copy of the cookie, before the app is started again and after."""

    async def look(site: Site, cookie: str) -> list[int]:
        thief = site.browser()
        thief.client.cookies.set(COOKIE, cookie, domain="127.0.0.1")
        return [(await thief.open(path)).status_code for path in ("/", "/progress")]

    async def run() -> None:
        async with opened(tmp_path) as (site, _):
            browser, other = await site.signed_in("ann"), await site.signed_in("ann")
            cookie = str(browser.client.cookies[COOKIE])
            await browser.open("/")
            assert await look(site, cookie) == [200, 200]
            assert (await browser.send("/sign-out")).status_code == 303
            assert await look(site, cookie) == [401, 401]
            assert (await other.open("/")).status_code == 200
        async with opened(tmp_path) as (site, _):
            assert await look(site, cookie) == [401, 401]

    asyncio.run(run())


def test_a_session_from_before_the_sign_in_is_never_the_signed_in_one(tmp_path: Path) -> None:
    """Somebody plants a cookie of their own and waits until the reviewer signs in with it."""

    async def run() -> None:
        async with opened(tmp_path) as (site, _):
            planted = site.browser()
            await planted.open("/sign-in")
            cookie = str(planted.client.cookies[COOKIE])
            victim = site.browser()
            victim.client.cookies.set(COOKIE, cookie, domain="127.0.0.1")
            assert (await victim.sign_in(make_token(site.room.key, "ann"))).status_code == 303
            assert (await planted.open("/")).status_code == 401
            assert str(planted.client.cookies[COOKIE]) == cookie

    asyncio.run(run())

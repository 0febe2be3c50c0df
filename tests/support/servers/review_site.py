"""The review app in this process, on a store with cases that wait at the gate, and browsers that use it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from governed_tables import CALM
from html_pages import Page

from reliability.governed.cases import draw_cases, make_seating
from scenarios.team import PlanGame, TeamScenario, generate
from serving.guard import Guard, settle_access
from serving.review.app import LIMITS, make_app
from serving.review.room import ReviewSettings, Room, make_token, open_room
from serving.review.turns import SeatTurn, make_turn
from simulator.chat import MessageChat
from simulator.governance.proposal import ReviewRequest
from simulator.governance.reviewers import AbsentReviewer, Reviewer
from simulator.governance.runner import GovernedEpisode, play_governed
from training.feedback.labels import Message, Provenance, QueuedItem, write_queue

ORIGIN = "http://127.0.0.1:8800"
SYSTEM = Message(role="system", content="You are ReconcileGPT.")
CHAT, SEAT_CASE = MessageChat(), generate("test", 0, 1, 2)
OWN = '{"option": "B", "fund": ["cto"], "escalate": false}'
OTHER = '{"option": "A", "fund": [], "escalate": false}'


@dataclass(kw_only=True)
class Browser:
    """One browser: its cookies, and forms as pages give them."""

    client: httpx.AsyncClient
    form_tokens: dict[str, str] = field(
        default_factory=dict
    )  # path -> of the last page that had a form for it

    async def open(self, path: str, **headers: str) -> httpx.Response:
        """GET a page and remember its forms."""
        answer = await self.client.get(path, headers=headers)
        if answer.headers.get("content-type", "").startswith("text/html") and answer.text:
            self.form_tokens |= find_form_tokens(answer.text)
        return answer

    async def send(self, path: str, headers: dict[str, str] | None = None, **fields: Any) -> httpx.Response:
        """POST a form to a path, with the token that a page gave for it."""
        given = {"form_token": self.form_tokens.get(path, ""), **fields}
        return await self.client.post(path, data=given, headers={"origin": ORIGIN, **(headers or {})})

    async def sign_in(self, token: str) -> httpx.Response:
        """Sign in with a personal token."""
        await self.open("/sign-in")
        return await self.send("/sign-in", token=token)


@dataclass(kw_only=True)
class Site:
    """An open review app."""

    room: Room
    cases: Sequence[TeamScenario]
    app: Guard

    def browser(self) -> Browser:
        """Return a browser that nobody has signed in with."""
        transport = httpx.ASGITransport(app=self.app)
        return Browser(client=httpx.AsyncClient(transport=transport, base_url=ORIGIN))

    async def signed_in(self, name: str) -> Browser:
        """Return a reviewer's browser."""
        browser = self.browser()
        answer = await browser.sign_in(make_token(self.room.key, name))
        assert answer.status_code == 303, answer.text
        return browser

    def list_open(self) -> list[ReviewRequest]:
        """Return the requests that can be ruled on."""
        return self.room.services.gate.list_open()

    async def play(self, reviewer: Reviewer | None = None) -> list[GovernedEpisode]:
        """Play the cases on as far as they go."""
        return await play_governed(
            self.cases, self.room.services, make_seating(self.cases), reviewer or AbsentReviewer(), CALM
        )


@asynccontextmanager
async def open_site(
    folder: Path,
    *,
    num_cases: int = 1,
    reviewers: Sequence[str] = ("ann", "ben", "cleo"),
    items: Sequence[QueuedItem] = (),
    **settings: Any,
) -> AsyncIterator[Site]:
    """Open the app on a store whose first cases wait at the gate, and on a queue of answers."""
    queue = folder / "queue.jsonl"
    write_queue(queue, items)
    given = ReviewSettings(store=folder / "s.db", reviewers=tuple(reviewers), queue=queue, **settings)
    async with open_room(given) as room:
        app = make_app(given, room=room)
        guard = Guard(app, settle_access(port=8800), LIMITS)
        async with app.router.lifespan_context(app):
            site = Site(room=room, cases=draw_cases(num_cases), app=guard)
            if num_cases:
                await site.play()
            yield site


def hear(*more: str) -> tuple[int, ...]:
    """Return what the COO has heard: its brief, and what was said since."""
    game = PlanGame(SEAT_CASE)
    ids = CHAT.open(game.prompt_role("coo"), game.write_report_brief("coo"), with_tools=True)
    for text in more:
        ids = (*ids, *CHAT.encode('{"vote": "accept"}'), CHAT.end_id, *CHAT.ask(text))
    return ids


def ask_seat(session: str = "s/t/coo", *more: str) -> SeatTurn:
    """A turn of the COO, played by a person."""
    return make_turn(session, "coo", CHAT.read(hear(*more)), 2_000)


def find_form_tokens(page: str) -> dict[str, str]:
    """Return the form token of every path that the page has a form for."""
    found, path = {}, ""
    for tag, attributes in Page(page).elements:
        if tag == "form" and attributes.get("method") == "post":
            path = str(attributes["action"])
        elif tag == "input" and attributes.get("name") == "form_token":
            found[path] = str(attributes["value"])
    return found


def make_item(number: int = 0, *, answers: Sequence[str] = (OWN, OTHER), **changed: Any) -> QueuedItem:
    """Return an answer to judge."""
    values: dict[str, Any] = {
        "case": f"team/train/0/{number}/2",
        "seat": "reconcile",
        "prompt": (SYSTEM, Message(role="user", content=f"Table {number}.")),
        "answers": tuple((Message(role="assistant", content=text, token_ids=(5, 2)),) for text in answers),
        "reasons": ("low margin",),
        "margin": 0.25,
        "decisions": {"B cto": 5, "A": 3},
        "title": f"Bank case {number}",
        "table": "Option A costs nothing.",
        "briefs": {"cto": "Northbank runs on one node."},
        "reports": {"cto": '{"offers": [], "needs": [], "veto": []}'},
        "votes": {"cto": '{"vote": "accept"}'},
        "options": {"A": ["coo"], "B": ["cto", "risk"]},
        "provenance": Provenance(run="demo", weights="marl", style="short"),
    }
    return QueuedItem(**{**values, **changed})

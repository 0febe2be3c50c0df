"""A person plays a whole case in a real browser: opens, edits, approves by keyboard, and execution goes on.

Needs an installed Chromium and `pip install 'emads[browser]'`; EMADS_CHROMIUM names another program.
"""

import asyncio
import os
import shutil
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
import uvicorn
from governed_tables import CALM
from review_site import ask_seat, make_item

from reliability.governed.cases import KEY, draw_cases, make_seating
from serving.guard import Guard, open_socket, settle_access
from serving.review.app import LIMITS, make_app
from serving.review.room import ReviewSettings, make_token
from serving.review.turns import SeatDesk
from simulator.governance.reviewers import AbsentReviewer, WebReviewer
from simulator.governance.runner import GovernedEpisode, open_services, play_governed
from simulator.governance.seals import KEY_VARIABLE
from training.feedback.labels import write_queue

CHROMIUM = os.environ.get("EMADS_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
T = TypeVar("T")
WAIT_MS = 60_000
SERIOUS = ("serious", "critical")

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed; EMADS_CHROMIUM names one"),
]


@pytest.fixture
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install 'emads[browser]'")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


def run_apart(work: Coroutine[Any, Any, T]) -> T:
    """Run it in a thread of its own: the driver of the browser has an event loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


class Simulation(threading.Thread):
    """`emads simulate --reviewer web` in a thread: two cases that wait for people."""

    def __init__(self, store: Path) -> None:
        super().__init__(daemon=True)
        self._store = store
        self.episodes: list[GovernedEpisode] = []

    def run(self) -> None:
        asyncio.run(self._play())

    async def _play(self) -> None:
        cases = draw_cases(2)
        async with open_services(self._store, key=KEY) as services:
            reviewer = WebReviewer(services.gate.find_answer)
            self.episodes = await play_governed(cases, services, make_seating(cases), reviewer, CALM)


@contextmanager
def serving(folder: Path) -> Iterator[tuple[str, Path]]:
    """The app on a port of this machine; its address and its store."""
    store, queue = folder / "s.db", folder / "queue.jsonl"
    write_queue(queue, [make_item()])

    async def make_empty() -> None:
        async with open_services(store, key=KEY):
            pass

    run_apart(make_empty())
    settings = ReviewSettings(store=store, queue=queue, reviewers=("ann",))
    access = settle_access(port=0)
    server = uvicorn.Server(
        uvicorn.Config(Guard(make_app(settings), access, LIMITS), log_level="warning", ws="none")
    )
    with open_socket(access) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", store
        server.should_exit = True
        thread.join()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Path]]:
    monkeypatch.setenv(KEY_VARIABLE, KEY.hex())
    with serving(tmp_path) as opened:
        yield opened


def open_inbox(browser: Any, address: str, width: int = 1280, height: int = 900) -> tuple[Any, list[str]]:
    """A signed-in page, and what its console complains of."""
    page = browser.new_context(viewport={"width": width, "height": height}).new_page()
    page.set_default_timeout(WAIT_MS)
    complaints: list[str] = []
    page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(f"{address}/sign-in#{make_token(KEY, 'ann')}")
    page.wait_for_selector("#rows")
    assert page.url == f"{address}/"
    return page, complaints


def test_a_whole_case_by_keyboard_alone(browser: Any, site: tuple[str, Path]) -> None:
    address, store = site
    page, complaints = open_inbox(browser, address)
    assert page.locator("a.case").count() == 1  # the answer to judge
    simulation = Simulation(store)
    simulation.start()
    page.locator("a.case").nth(2).wait_for()  # they appear by themselves
    keys = page.keyboard
    keys.press("j")
    keys.press("Enter")
    page.wait_for_selector("#ruling")
    title = page.inner_text("h1")
    before = page.inner_text("#proposal .what")
    keys.press("e")
    keys.press("Tab")
    keys.press("ArrowDown")
    keys.press("Tab")
    keys.press("Tab")
    keys.press("Enter")
    page.wait_for_selector("#state a")  # the next proposal of the case is there
    page.locator("#state a").focus()
    keys.press("Enter")
    page.wait_for_selector("#changes")
    assert page.inner_text("h1") == title
    assert page.inner_text("#proposal .what") != before
    keys.press("a")
    keys.press("Tab")
    keys.press("Enter")
    page.locator("#state", has_text="Carried out").wait_for()
    keys.press("n")
    page.wait_for_selector("#ruling")
    keys.press("a")
    page.locator("button.main").focus()
    keys.press("Enter")
    page.locator("#state", has_text="approved").wait_for()
    simulation.join(timeout=WAIT_MS / 1000)
    assert [episode.status for episode in simulation.episodes] == ["completed"] * 2
    assert complaints == []


def test_an_answer_is_corrected_in_its_form(browser: Any, site: tuple[str, Path]) -> None:
    address, store = site
    page, complaints = open_inbox(browser, address)
    page.click("a.case")
    page.wait_for_selector("#plays")
    page.keyboard.press("e")
    page.select_option("#answer-option", "A")
    page.check("input[name='answer.fund'][value='coo']")
    page.uncheck("input[name='answer.fund'][value='cto']")
    page.fill("#answer-reason", "A is cheaper.")
    page.click("text=Keep the correction")
    page.wait_for_selector("text=labelled")
    kept = (store.with_name("s.db.labels.jsonl")).read_text()
    assert '\\"fund\\": [\\"coo\\"]' in kept
    assert complaints == []


def test_a_seat_is_played_in_its_forms(browser: Any, site: tuple[str, Path]) -> None:
    address, store = site
    desk, first, second = SeatDesk(store), ask_seat(), ask_seat("s/t/coo", "Vote on option A.")
    page, complaints = open_inbox(browser, address)
    desk.ask(first)
    page.locator("a.case", has_text="COO's turn").wait_for()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector("#heard")
    page.fill("[name='report.offers.0.option']", "A")
    page.fill("[name='report.offers.0.part']", "night shift\nspare crew")
    page.fill("[name='report.offers.0.cost']", "9")
    page.fill("[name='report.offers.0.worth']", "14")
    page.locator("#form-report button.main").click()
    page.locator("#state", has_text="answered by ann").wait_for()
    desk.ask(second)
    page.click("#next")
    page.select_option("[name='vote.vote']", "accept")
    page.locator("#form-vote button.main").click()
    page.locator("#state", has_text="answered by ann").wait_for()
    answers = [desk.find_answer(turn.id) for turn in (first, second)]
    assert answers[0] is not None
    assert answers[1] is not None
    assert '"part": ["night shift", "spare crew"], "cost": 9' in answers[0].text
    assert answers[1].text == '{"vote": "accept", "reason": ""}'
    assert complaints == []


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)])
def test_pages_are_accessible_and_fit_the_screen(
    browser: Any, site: tuple[str, Path], width: int, height: int
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="pip install 'emads[browser]'")
    address, store = site
    cases = draw_cases(1)

    async def wait_at_gate() -> str:
        async with open_services(store, key=KEY) as services:
            await play_governed(cases, services, make_seating(cases), AbsentReviewer(), CALM)
            return services.gate.list_open()[0].interrupt_id

    interrupt_id = run_apart(wait_at_gate())
    SeatDesk(store).ask(ask_seat())
    page, _ = open_inbox(browser, address, width, height)
    pages = [f"/approvals/{interrupt_id}", f"/answers/{make_item().id}", f"/seats/{ask_seat().id}"]
    for path in ("/", *pages, "/progress", "/nowhere"):
        page.goto(address + path)
        for colours in ("light", "dark"):
            page.emulate_media(color_scheme=colours)
            found = axe.Axe().run(page).response["violations"]
            serious = [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in SERIOUS]
            assert serious == [], (path, colours)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path

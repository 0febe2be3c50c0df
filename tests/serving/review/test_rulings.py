"""Rulings in the browser: signed for what was shown, refused where they do not count, followed at once."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from review_site import Browser, Site, open_site

from serving.review.progress import describe_progress
from serving.review.room import make_token
from simulator.governance.proposal import ReviewRequest
from simulator.governance.reviewers import WebReviewer


def on_site(folder: Path, play: Callable[[Site], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def run() -> None:
        async with open_site(folder, **options) as site:
            await play(site)

    asyncio.run(run())


async def rule(browser: Browser, request: ReviewRequest, ruling: str, **fields: str) -> Any:
    path = f"/approvals/{request.interrupt_id}"
    await browser.open(path)
    given = {"digest": request.digest, "ruling": ruling, **fields}
    return await browser.send(path, None, **given)


def test_an_approval_in_the_browser_lets_the_case_go_to_its_end(tmp_path: Path) -> None:
    async def play(site: Site) -> None:
        ann = await site.signed_in("ann")
        (request,) = site.list_open()
        assert request.proposal.words.title in (await ann.open("/")).text
        assert (await rule(ann, request, "approve")).status_code == 303
        (episode,) = await site.play()
        assert episode.status == "completed"
        committed = site.room.services.log.find(request.thread, "committed")
        assert [entry.body["reviewer"] for entry in committed] == ["ann"]
        page = (await ann.open(f"/approvals/{request.interrupt_id}")).text
        assert "approved" in page
        assert "Carried out, every KPI holds" in page
        outcomes = [(one.body["reviewer"], one.body["outcome"]) for one in site.room.audit.read()]
        assert outcomes[-2:] == [("ann", "handed to the desk"), ("ann", "kept")]
        assert ("ann", 1, 0) in describe_progress(site.room, "ann").by_reviewer

    on_site(tmp_path, play)


def test_an_edit_is_shown_again_with_what_changed(tmp_path: Path) -> None:
    async def play(site: Site) -> None:
        ann = await site.signed_in("ann")
        (request,) = site.list_open()
        others = [
            line.option
            for line in request.proposal.options
            if line.worth is not None and line.option != request.proposal.option
        ]
        assert (await rule(ann, request, "edit", option="none")).status_code == 422
        assert (await rule(ann, request, "edit", option=others[0])).status_code == 303
        await site.play()
        (again,) = site.list_open()
        assert again.proposal.option == others[0]
        page = (await ann.open(f"/approvals/{again.interrupt_id}")).text
        assert "Changed since the last proposal" in page
        assert f"option: {request.proposal.option} before, {others[0]} now" in page
        before = (await ann.open(f"/approvals/{request.interrupt_id}")).text
        assert f'href="/approvals/{again.interrupt_id}"' in before

    on_site(tmp_path, play, num_cases=1)


def test_a_rejection_needs_a_reason_and_keeps_what_was_typed(tmp_path: Path) -> None:
    async def play(site: Site) -> None:
        ann = await site.signed_in("ann")
        (request,) = site.list_open()
        refused = await rule(ann, request, "reject", feedback="  ")
        assert refused.status_code == 422
        assert "Say why you reject it" in refused.text
        too_long = await rule(ann, request, "reject", feedback="a" * 2_001)
        assert too_long.status_code == 422
        assert "a" * 2_001 in too_long.text
        assert len(site.list_open()) == 1
        assert (await rule(ann, request, "reject", feedback="Too dear.")).status_code == 303
        await site.play()
        (again,) = site.list_open()
        assert any("the reviewer rejected it" in one for one in again.proposal.conditions)

    on_site(tmp_path, play)


def test_another_digest_a_second_ruling_and_a_stranger_are_turned_away(tmp_path: Path) -> None:
    async def play(site: Site) -> None:
        ann, ben = await site.signed_in("ann"), await site.signed_in("ben")
        (request,) = site.list_open()
        assert (await rule(ann, request, "approve", digest="0" * 64)).status_code == 409
        assert (await rule(ann, request, "maybe")).status_code == 422
        path = f"/approvals/{request.interrupt_id}"
        await ben.open(path)
        assert (await rule(ann, request, "approve")).status_code == 303
        second = await ben.send(path, digest=request.digest, ruling="reject", feedback="No.")
        assert second.status_code == 409
        assert "the request was settled" in second.text
        kept = site.room.services.gate.find_answer(request.interrupt_id)
        assert kept is not None
        assert kept.body["reviewer"] == "ann"
        stranger = site.browser()
        assert (await stranger.sign_in(make_token(b"o" * 32, "ann"))).status_code == 401
        assert (await stranger.open("/")).status_code == 401

    on_site(tmp_path, play)


def test_with_four_eyes_a_plan_waits_for_a_second_reviewer(tmp_path: Path) -> None:
    async def play(site: Site) -> None:
        ann, ben = await site.signed_in("ann"), await site.signed_in("ben")
        (request,) = site.list_open()
        assert (await rule(ann, request, "approve")).status_code == 303
        assert (
            "ann approved; a second reviewer is needed"
            in (await ben.open(f"/approvals/{request.interrupt_id}")).text
        )
        assert (await rule(ann, request, "approve")).status_code == 409
        assert (await site.play())[0].status == "waiting"
        assert (await rule(ben, request, "approve")).status_code == 303
        assert (await site.play())[0].status == "completed"

    on_site(tmp_path, play, four_eyes=True)


def test_a_waiting_episode_goes_on_within_a_second_of_the_ruling(tmp_path: Path) -> None:
    async def play(site: Site) -> None:
        ann = await site.signed_in("ann")
        waiting = asyncio.create_task(site.play(WebReviewer(site.room.services.gate.find_answer)))
        while not site.room.services.log.find(site.list_open()[0].thread, "asked"):
            await asyncio.sleep(0.02)
        request, *others = site.list_open()
        unchanged = (await ann.open("/")).text.partition('hx-get="')[2].partition('"')[0]
        assert (await ann.open(unchanged.replace("&amp;", "&"))).status_code == 204
        waits_s = []
        for one in (request, *others):
            assert (await rule(ann, one, "approve")).status_code == 303
            ruled_at = time.monotonic()
            while not site.room.services.log.find(one.thread, "committed"):
                await asyncio.sleep(0.01)
            waits_s.append(time.monotonic() - ruled_at)
        assert min(waits_s) < 1.0  # the least of three: a busy machine may hold one up
        assert [episode.status for episode in await waiting] == ["completed"] * 3
        assert (await ann.open(unchanged.replace("&amp;", "&"))).status_code == 200

    on_site(tmp_path, play, num_cases=3)


def test_the_page_shows_what_is_signed_and_each_seats_work(tmp_path: Path) -> None:
    async def play(site: Site) -> None:
        ann = await site.signed_in("ann")
        (request,) = site.list_open()
        page = (await ann.open(f"/approvals/{request.interrupt_id}")).text
        proposal = request.proposal
        assert request.digest in page
        assert f"risk {proposal.risk_score} of 12" in page
        for part in proposal.parts:
            assert part.action in page
        for report in proposal.reports.values():
            assert report is not None
            assert all(", ".join(offer.part) in page for offer in report.offers)
        assert page.count("<summary>what it read</summary>") >= len(proposal.reports)

    on_site(tmp_path, play)

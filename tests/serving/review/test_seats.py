"""A person plays a seat in the browser: forms, slips, tools, who may rule, a simulation that is killed."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from review_site import CHAT, SEAT_CASE, Browser, Site, ask_seat, hear, open_site

from emads.seats.person import WebPersonEngine
from roles.errors import UserError
from scenarios.team import PlanGame
from serving.review.turns import SeatDesk
from simulator.engines.base import CompletionRequest, Sampling
from simulator.governance.seals import KEY_VARIABLE
from training.feedback.labels import time_now

ROOT = Path(__file__).parents[3]
OFFER = {"offers.0.option": "A", "offers.0.part": "night shift\nspare crew", "offers.0.worth": "14"}


def on_site(folder: Path, play: Callable[[Site], Coroutine[Any, Any, None]], num_cases: int = 0) -> None:
    async def run() -> None:
        async with open_site(folder, num_cases=num_cases) as site:
            await play(site)

    asyncio.run(run())


async def say(browser: Browser, turn_id: str, form: str, **fields: Any) -> Any:
    path = f"/seats/{turn_id}"
    await browser.open(path)
    return await browser.send(path, form=form, **{f"{form}.{name}": given for name, given in fields.items()})


def test_a_turn_waits_for_the_first_answer_and_is_found_again_by_what_the_seat_heard(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    request = CompletionRequest(
        policy="coo", session="s/t/coo", prompt_ids=hear(), sampling=Sampling(max_completion_tokens=2_001)
    )

    async def run() -> None:
        waiting = asyncio.create_task(WebPersonEngine(store, poll_s=0.01).complete(request))
        desk = SeatDesk(store)
        while not desk.list_turns():
            await asyncio.sleep(0.01)
        (turn,) = desk.list_turns().values()
        assert turn == ask_seat()
        assert not waiting.done()
        for text, person in (('{"vote": "object"}', "ann"), ('{"vote": "accept"}', "ben")):
            desk.answer(turn, text, person, time_now())
        done = await waiting
        assert CHAT.decode(done.token_ids) == '{"vote": "object"}'
        assert (done.finish_reason, done.policy_version) == ("stop", "coo@human")
        again = await WebPersonEngine(store).complete(request)
        assert again == done
        assert len(SeatDesk(store).list_turns()) == 1
        assert desk.find_person(ask_seat("s/t/coo", "Vote.")) == "ann"
        assert desk.find_person(ask_seat("s/other/coo")) is None

    asyncio.run(run())


@pytest.mark.parametrize("changed", [{"text": '{"vote": "accept"}'}, {"person": "ben"}, {"seal": "0" * 64}])
def test_nobody_without_the_key_speaks_for_a_person(changed: dict[str, str], tmp_path: Path) -> None:
    """An answer is written into the file, or one that was given is changed there."""
    desk, turn = SeatDesk(tmp_path / "s.db"), ask_seat("s/t/coo", "Vote on option A.")
    desk.ask(turn)
    desk.answer(turn, '{"vote": "object"}', "ann", time_now())
    assert desk.path.stat().st_mode & 0o077 == 0
    told, given = desk.path.read_text().splitlines()
    answer = {**json.loads(given)["answer"], **changed}
    desk.path.write_text(f"{told}\n{json.dumps({'answer': answer})}\n")
    with pytest.raises(UserError, match="not written with this key"):
        SeatDesk(tmp_path / "s.db").find_answer(turn.id)


def test_a_report_is_made_in_its_form_and_a_slip_is_shown_beside_its_field(tmp_path: Path) -> None:
    async def play(site: Site) -> None:
        turn = ask_seat()
        site.room.seats.ask(turn)
        ann = await site.signed_in("ann")
        assert f"/seats/{turn.id}" in (await ann.open("/")).text
        page = (await ann.open(f"/seats/{turn.id}")).text
        assert "You play COO" in page
        assert PlanGame(SEAT_CASE).write_report_brief("coo").splitlines()[0][:40] in page.replace(
            "&#39;", "'"
        )
        slip = await say(ann, turn.id, "report", **OFFER, **{"offers.0.cost": "nine"})
        assert slip.status_code == 422
        assert "night shift" in slip.text
        assert 'id="report-offers-0-cost-mistake"' in slip.text
        assert (await say(ann, turn.id, "dance")).status_code == 422
        assert (await say(ann, turn.id, "report", note="x" * 401)).status_code == 422
        assert site.room.seats.find_answer(turn.id) is None
        done = await say(ann, turn.id, "report", **OFFER, **{"offers.0.cost": "9", "needs": "A"})
        assert done.status_code == 303
        kept = site.room.seats.find_answer(turn.id)
        assert kept is not None
        assert kept.person == "ann"
        assert json.loads(kept.text) == {
            "offers": [{"option": "A", "part": ["night shift", "spare crew"], "cost": 9, "worth": 14}],
            "needs": ["A"],
            "veto": [],
            "note": "",
        }
        outcomes = [(one.kind, one.body["outcome"]) for one in site.room.audit.read() if one.kind == "seat"]
        assert outcomes == [("seat", "refused: not valid")] * 3 + [("seat", "kept")]

    on_site(tmp_path, play)


def test_whoever_began_to_play_a_seat_goes_on_and_tools_are_forms_too(tmp_path: Path) -> None:
    async def play(site: Site) -> None:
        first, second = ask_seat(), ask_seat("s/t/coo", "Vote on option A.")
        site.room.seats.ask(first)
        ann, ben = await site.signed_in("ann"), await site.signed_in("ben")
        assert (await say(ann, first.id, "measure")).status_code == 422
        assert (await say(ann, first.id, "measure", option="A", part="spare crew")).status_code == 303
        kept = site.room.seats.find_answer(first.id)
        assert kept is not None
        assert '{"name": "measure", "arguments": {"option": "A", "part": ["spare crew"]}}' in kept.text
        site.room.seats.ask(second)
        assert f'href="/seats/{second.id}"' in (await ann.open(f"/seats/{first.id}/state")).text
        assert "ann plays this seat" in (await ben.open(f"/seats/{second.id}")).text
        ben.form_tokens |= {f"/seats/{second.id}": "0" * 64}
        assert (await say(ben, second.id, "vote", vote="accept")).status_code in (403, 409)
        assert '<details name="answer" open><summary>Vote' in (await ann.open(f"/seats/{second.id}")).text
        assert (await say(ann, second.id, "vote", vote="object", reason="Dear.")).status_code == 303
        assert (await say(ann, second.id, "vote", vote="accept")).status_code in (403, 409)
        assert (await ann.open("/seats/" + "0" * 16)).status_code == 404

    on_site(tmp_path, play)


def test_who_plays_a_seat_of_a_case_cannot_rule_on_its_plan(tmp_path: Path) -> None:
    async def play(site: Site) -> None:
        (request,) = site.list_open()
        turn = ask_seat(f"g/{request.thread}/coo")
        site.room.seats.ask(turn)
        ann, ben = await site.signed_in("ann"), await site.signed_in("ben")
        assert (await say(ann, turn.id, "vote", vote="accept")).status_code == 303
        path = f"/approvals/{request.interrupt_id}"
        for browser, status in ((ann, 409), (ben, 303)):
            await browser.open(path)
            answer = await browser.send(path, digest=request.digest, ruling="approve")
            assert answer.status_code == status
            assert status == 303 or "ann plays a seat of the case" in answer.text
        (episode,) = await site.play()
        assert episode.status == "completed"

    on_site(tmp_path, play, num_cases=1)


def start(store: Path, key: bytes) -> "subprocess.Popen[str]":
    """`emads simulate` with a person at a seat and people at the gate."""
    words = f"simulate --team scripted --seat coo=human --protocol full --reviewer web --index 1 --db {store}"
    call = [sys.executable, "-m", "emads.cli", *words.split()]
    environment = {**os.environ, KEY_VARIABLE: key.hex(), "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(call, env=environment, text=True, stdout=subprocess.PIPE)


@pytest.mark.process
def test_a_killed_simulation_finds_what_the_person_said_meanwhile_and_plays_on(tmp_path: Path) -> None:
    async def play(site: Site) -> None:
        ann, ben = await site.signed_in("ann"), await site.signed_in("ben")
        simulation = start(site.room.settings.store, site.room.key)

        while not (turns := list(site.room.seats.list_turns())):
            assert simulation.poll() is None, "the simulation ended"
            await asyncio.sleep(0.05)
        simulation.send_signal(signal.SIGKILL)
        simulation.wait()
        assert (await say(ann, turns[0], "report", note="Nothing of mine.")).status_code == 303
        simulation = start(site.room.settings.store, site.room.key)
        while simulation.poll() is None:  # the plan is ruled on, and plans that follow from what happens
            for turn_id in site.room.seats.list_turns():
                if site.room.seats.find_answer(turn_id) is None:
                    assert (await say(ann, turn_id, "report")).status_code == 303
            for request in site.list_open():
                path = f"/approvals/{request.interrupt_id}"
                await ben.open(path)
                assert (await ben.send(path, digest=request.digest, ruling="approve")).status_code == 303
            await asyncio.sleep(0.05)
        assert simulation.returncode == 0
        assert simulation.stdout is not None
        assert "coo" in simulation.stdout.read().lower()
        assert next(iter(site.room.seats.list_turns())) == turns[0]

    on_site(tmp_path, play)

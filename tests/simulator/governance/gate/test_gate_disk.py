"""Rows written into the store behind the gate permit and deliver nothing; a changed log is noticed."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from finality_probes import stop
from gate_probes import behind_our_back, write_entry
from governed_tables import CALM, OTHER_KEY, Stand, stand_at_gate, yes_man

from reliability.governed.cases import KEY, draw_cases, make_seating
from roles.errors import UserError
from simulator.governance.gate import LIFETIME_S
from simulator.governance.log import entry_hash
from simulator.governance.outcomes import CarriedPlan, Observation, SimulatedOutcomes
from simulator.governance.runner import open_services, play_governed
from simulator.governance.seals import NotApprovedError


@pytest.mark.parametrize("kind", ["approved", "committed", "executed", "closed"])
def test_an_entry_that_is_written_into_the_log_stops_the_case(kind: str, tmp_path: Path) -> None:
    """Chained as it should be, but without the key: nothing is carried out, nothing is written."""

    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            proposal, request = await stand.proposal(), await stand.request()
            body = {"digest": proposal.digest, "interrupt_id": request.interrupt_id, "status": "completed"}
            more = {"expires_at_s": 2**40, "role": "cto", "attempt": 0, "reviewer": "ann"}
            await write_entry(stand, kind, **body, **more)
            num_entries = len(stand.kinds())
            assert await stand.answer(True) is None
            assert len(stand.kinds()) == num_entries
            with pytest.raises(NotApprovedError, match="not as it was written with this key"):
                stand.services.gate.stand(stand.thread)

    asyncio.run(run())


def test_time_is_that_of_the_latest_log_entry_at_least(tmp_path: Path) -> None:
    """Another case is ruled on after the approval has expired; then the clock is set back."""

    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            await stand.submit()
            stand.clock.now_s += LIFETIME_S + 1
            stand.services.log.append("another", "asked", {})
            stand.clock.now_s -= LIFETIME_S + 1
            await stand.answer(True)
            refused = [entry.body["reason"] for entry in stand.services.log.find(stand.thread, "refused")]
            assert refused == ["expired"]
            assert stand.count("committed") == 0

    asyncio.run(run())


def test_a_refused_commit_takes_the_approval_back(tmp_path: Path) -> None:
    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            interrupt_id = (await stand.request()).interrupt_id
            await stop(stand, "commit", await stand.submit())
            assert ruling_on(stand, interrupt_id) == "approve"
            stand.clock.now_s += LIFETIME_S + 1
            await stop(stand, "review")
            assert ruling_on(stand, interrupt_id) == "refused"

    asyncio.run(run())


def ruling_on(stand: Stand, interrupt_id: str) -> str:
    display = stand.services.gate.find(interrupt_id)
    assert display is not None
    return display.ruling


def change_log(path: Path, *, anew: bool, thread: str = "%") -> None:
    """Change the last entry, or the last of a thread; `anew`: with a hash that fits again."""
    with behind_our_back(path) as connection:
        last = (
            "SELECT sequence, thread, kind, body, at_s, own, previous FROM decision_log WHERE thread LIKE ?"
            " ORDER BY 1 DESC LIMIT 1"
        )
        sequence, *fields = connection.execute(last, (thread,)).fetchone()
        fields[2] = fields[2].replace('"digest":"', '"digest":"f')
        change = "UPDATE decision_log SET body = ? WHERE sequence = ?"
        assert connection.execute(change, (fields[2], sequence)).rowcount == 1
        if anew:
            hashed = entry_hash(sequence, *fields)
            connection.execute("UPDATE decision_log SET hash = ? WHERE sequence = ?", (hashed, sequence))


@pytest.mark.parametrize("anew", [False, True])
def test_a_case_is_not_closed_over_a_changed_log(anew: bool, tmp_path: Path) -> None:
    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            await stop(stand, "close", await stand.submit())
            change_log(stand.path, anew=anew, thread=stand.thread)
            assert await stand.go() is None
            assert "closed" not in stand.kinds()

    asyncio.run(run())


@pytest.mark.parametrize("damage", ["changed", "written anew", "another key"])
def test_no_case_is_played_on_a_log_that_is_not_its_own(damage: str, tmp_path: Path) -> None:
    cases, path = draw_cases(1), tmp_path / "s.db"

    async def play(key: bytes) -> None:
        async with open_services(path, key=key) as services:
            await play_governed(cases, services, make_seating(cases), yes_man(), CALM)

    asyncio.run(play(KEY))
    if damage != "another key":
        change_log(path, anew=damage == "written anew")
    with pytest.raises(
        UserError, match=r"decision log (is not as it was written|as .* knows it)|no mark that"
    ):
        asyncio.run(play(OTHER_KEY if damage == "another key" else KEY))


class Collapse(SimulatedOutcomes):
    """A world in which every plan fails."""

    def observe(self, before: Sequence[CarriedPlan], plan: CarriedPlan) -> Observation:
        told = super().observe(before, plan)
        return Observation(**{**told, "kpis": dict.fromkeys(told["kpis"], 1)})


def test_alerts_are_in_the_status_of_a_case_that_is_closed_over_them(tmp_path: Path) -> None:
    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            stand.context = replace(stand.context, outcomes=Collapse(stand.case))
            await stop(stand, "replan", await stand.submit())
            await stand.jump("close", status="completed")
            assert stand.services.gate.stand(stand.thread).status == "completed_with_alerts"

    asyncio.run(run())

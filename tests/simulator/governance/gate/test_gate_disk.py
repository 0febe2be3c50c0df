"""Rows written into the store behind the gate permit and deliver nothing; a changed log is noticed."""

import asyncio
import json
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from finality_probes import COMMITS_ON_DISK, insert_row, next_superstep, stop
from gate_probes import Probe
from governed_tables import CALM, OTHER_KEY, Stand, stand_at_gate, yes_man

from emads.reliability.governed.cases import KEY, draw_cases, make_seating
from roles.errors import UserError
from simulator.governance.outcomes import CarriedPlan, Observation, SimulatedOutcomes
from simulator.governance.runner import open_services, play_governed
from simulator.governance.store.decision_log import entry_hash


async def approve_up_to_the_executors(stand: Stand) -> None:
    """Commit honestly, then write the four deliveries behind the gate's back."""
    approval = (await stand.sign()).model_dump()
    await stop(stand, "commit", approval)
    await stand.graph.ainvoke(
        None, stand.config, context=stand.context, durability="sync", interrupt_after=["commit"]
    )
    proposal = await stand.proposal()
    for part in proposal.parts:
        row = {"digest": proposal.digest, "role": part.role, "action": part.action}
        insert_row(stand, "deliveries", thread=stand.thread, **row)


def test_deliveries_written_on_disk_are_none(tmp_path: Path) -> None:
    """The seats carry out their parts all the same."""

    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            await approve_up_to_the_executors(stand)
            final = await stand.go()
            assert final["status"] == "completed"
            assert stand.kinds().count("executed") == 4
            assert stand.is_sound()

    asyncio.run(run())


def test_deliveries_with_their_effects_on_disk_do_not_complete_a_case(tmp_path: Path) -> None:
    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            await approve_up_to_the_executors(stand)
            proposal = await stand.proposal()
            step = await next_superstep(stand)
            for part in proposal.parts:
                key = {"thread": stand.thread, "superstep": step, "input_digest": proposal.digest}
                insert_row(stand, "effects", node=f"execute_{part.role}", **key, result=json.dumps(None))
            final = await stand.go()
            assert final["status"] == "not_approved"
            assert "executed" not in stand.kinds()

    asyncio.run(run())


@pytest.mark.parametrize("probe", COMMITS_ON_DISK, ids=lambda probe: probe.__name__)
def test_a_genuine_approval_written_into_commits_permits_nothing(probe: Probe, tmp_path: Path) -> None:
    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            await probe(stand)
            assert stand.count("deliveries") == 0
            assert not {"committed", "executed", "observed"} & set(stand.kinds())

    asyncio.run(run())


def change_log(path: Path, *, anew: bool) -> None:
    """Change the last entry; `anew`: with a hash that fits again."""
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TRIGGER decision_log_keeps")
        last = "SELECT sequence, thread, kind, body, at_s, previous FROM decision_log ORDER BY 1 DESC LIMIT 1"
        sequence, thread, kind, body, at_s, previous = connection.execute(last).fetchone()
        body = body.replace('"digest":"', '"digest":"f')
        change = "UPDATE decision_log SET body = ? WHERE sequence = ?"
        assert connection.execute(change, (body, sequence)).rowcount == 1
        if anew:
            hashed = entry_hash(sequence, thread, kind, body, at_s, previous)
            connection.execute("UPDATE decision_log SET hash = ? WHERE sequence = ?", (hashed, sequence))
    connection.close()


@pytest.mark.parametrize("anew", [False, True])
def test_a_case_is_not_closed_over_a_changed_log(anew: bool, tmp_path: Path) -> None:
    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            await stop(stand, "close", (await stand.sign()).model_dump())
            change_log(stand.path, anew=anew)
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


def test_alerts_that_the_state_denies_are_in_the_status(tmp_path: Path) -> None:
    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            stand.context = replace(stand.context, outcomes=Collapse(stand.case))
            await stop(stand, "replan", (await stand.sign()).model_dump())
            final = await stand.claim({"alerts": []}, "monitor")
            assert final["status"] == "completed_with_alerts"

    asyncio.run(run())

"""Rows that are damaged or of other types: a user's error or an ended case, no traceback; time stands."""

import asyncio
import json
import sqlite3
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gate_probes import behind_our_back, write_entry
from governed_tables import CALM, HandClock, stand_at_gate, yes_man

from reliability.governed.cases import KEY, draw_cases, make_seating
from roles.errors import UserError
from simulator.governance.gate.approvals import NotApprovedError
from simulator.governance.record_reading import read_record
from simulator.governance.runner import open_services, play_governed

DAMAGE = {
    "another type": 7,
    "bytes": b"\xff\xfe",
    "nested": "[" * 900 + "]" * 900,
    "nested beyond reading": "[" * 9_000,
    "an integer of 70 bits": str(2**70),
    "half a character": '"\\ud800"',
    "nested in its place": json.dumps({"text": "x", "turns": [json.loads("[" * 500 + "]" * 500)]}),
    "half a character in its place": '{"text": "\\ud800", "turns": [1], "case": "\\ud800"}',
    "no JSON": "{",
}
COLUMNS = (
    *(("effects", "result"), ("precedents", "body"), ("requests", "body"), ("requests", "thread")),
    *(("decision_log", "body"), ("decision_log", "at_s"), ("decision_log", "thread")),
    *(("checkpoints", "body"), ("checkpoints", "written"), ("checkpoint_writes", "body")),
)


def play(path: Path, *, num_cases: int) -> None:
    cases = draw_cases(num_cases)

    async def run() -> None:
        async with open_services(path, key=KEY, clock=HandClock()) as services:
            seating = make_seating(cases)
            for case, episode in zip(
                cases, await play_governed(cases, services, seating, yes_man(), CALM), strict=True
            ):
                read_record(case, episode, services, stream=seating.stream)

    asyncio.run(run())


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("sound") / "s.db"
    play(path, num_cases=1)
    return path.read_bytes()


@pytest.mark.parametrize(("table", "column"), COLUMNS)
def test_a_damaged_row_ends_in_a_users_error(table: str, column: str, sound: bytes, tmp_path: Path) -> None:
    for number, value in enumerate(DAMAGE.values()):
        path = tmp_path / f"{number}.db"
        path.write_bytes(sound)
        with behind_our_back(path) as connection, suppress(sqlite3.IntegrityError):  # types are checked
            connection.execute(f"UPDATE {table} SET {column} = ?", (value,))
        with suppress(UserError):
            play(path, num_cases=2)


def test_a_row_without_a_seal_does_not_move_the_clock(tmp_path: Path) -> None:
    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            log, now = stand.services.log, stand.clock.now_s
            await write_entry(stand, "asked", interrupt_id="x")
            with behind_our_back(stand.path) as connection:
                last = "WHERE sequence = (SELECT max(sequence) FROM decision_log)"
                connection.execute(f"UPDATE decision_log SET at_s = {2**62} {last}")
            with pytest.raises(NotApprovedError, match="not as it was written"):
                log.now()
            with behind_our_back(stand.path) as connection:
                connection.execute(f"DELETE FROM decision_log {last}")
            assert log.now() == now

    asyncio.run(run())


@pytest.mark.parametrize("name", ["\ud800", "a\nb", "\u202e"])
def test_a_case_whose_name_cannot_be_printed_is_refused(name: str) -> None:
    (case,) = draw_cases(1)
    changed: dict[str, Any] = {"split": name}
    odd = replace(case, case=replace(case.case, **changed))
    assert name in odd.key

    async def run() -> None:
        async with open_services(None, key=KEY) as services:
            await play_governed([odd], services, make_seating([case]), yes_man(), CALM)

    with pytest.raises(UserError, match="characters that can be printed"):
        asyncio.run(run())

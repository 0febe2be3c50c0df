"""Rows that are damaged or of other types: a user's error or an ended case, no traceback; time stands."""

import asyncio
import itertools
import json
import re
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
from simulator.governance.record import read_record
from simulator.governance.runner import open_services, play_governed
from simulator.governance.seals import NotApprovedError

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
COLUMNS = ("thread", "kind", "body", "at_s", "own", "previous", "hash", "seal")
KINDS = ("opened", "said", "requested", "approved", "committed", "observed", "closed")


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


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_row_ends_in_a_users_error(kind: str, sound: bytes, tmp_path: Path) -> None:
    """The message names the store; nothing is played on it."""
    for number, (column, value) in enumerate(itertools.product(COLUMNS, DAMAGE.values())):
        path = tmp_path / f"{number}.db"
        path.write_bytes(sound)
        is_changed = False
        with suppress(sqlite3.IntegrityError), behind_our_back(path) as connection:  # types are checked
            connection.execute(f"UPDATE decision_log SET {column} = ? WHERE kind = ?", (value, kind))
            is_changed = True
        if is_changed:
            with pytest.raises(UserError, match=re.escape(str(path))):
                play(path, num_cases=2)


def test_the_database_keeps_the_types_of_columns(sound: bytes, tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    path.write_bytes(sound)
    with behind_our_back(path) as connection:
        for column, value in (("body", b"{}"), ("at_s", "soon"), ("thread", b"t"), ("at_s", 0.5)):
            with pytest.raises(sqlite3.IntegrityError, match="cannot store"):
                connection.execute(f"UPDATE decision_log SET {column} = ?", (value,))


def test_a_table_without_types_is_another_table(sound: bytes, tmp_path: Path) -> None:
    """Rows of other types need a table that takes them, and that is noticed at the opening."""
    path = tmp_path / "s.db"
    path.write_bytes(sound)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(
            "UPDATE sqlite_master SET sql = replace(sql, 'STRICT', '') WHERE name = 'decision_log'"
        )
    connection.close()
    with pytest.raises(UserError, match="'decision_log' is not as this version's stores have it"):
        play(path, num_cases=1)


def test_a_foreign_check_on_the_table_is_noticed_at_the_opening(sound: bytes, tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    path.write_bytes(sound)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(
            "UPDATE sqlite_master SET sql = replace(sql, 'kind TEXT NOT NULL',"
            " 'kind TEXT NOT NULL CHECK (kind != ''rejected'')') WHERE name = 'decision_log'"
        )
    connection.close()
    with pytest.raises(UserError, match="'decision_log' is not as this version's stores have it"):
        play(path, num_cases=1)


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

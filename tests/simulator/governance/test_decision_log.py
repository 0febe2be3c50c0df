"""The decision log: append-only, and the first entry that was touched is named."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from simulator.governance.log import DecisionLog, Entry, verify_chain
from simulator.governance.store import GENESIS, open_store


def fill(path: Path | None = None, count: int = 6) -> tuple[sqlite3.Connection, DecisionLog]:
    connection, _ = open_store(path)
    log = DecisionLog(connection, iter(range(1000, 2000)).__next__, key=b"k" * 32)
    for number in range(count):
        log.append(f"t{number % 2}", "closed", {"number": number})
    return connection, log


def test_a_sound_chain_is_sound() -> None:
    _, log = fill()
    entries = list(log.entries())
    assert verify_chain(entries, head=log.head()) is None
    assert [entry.sequence for entry in entries] == [1, 2, 3, 4, 5, 6]
    assert entries[0].previous == GENESIS
    assert [entry.body["number"] for entry in log.entries("t1")] == [1, 3, 5]
    assert verify_chain([]) is None


@pytest.mark.parametrize("place", range(6))
@pytest.mark.parametrize(
    "change",
    [
        {"thread": "t9"},
        {"kind": "refused"},
        {"body": {"number": 99}},
        {"at_s": 0},
        {"previous": "1" * 64},
        {"hash": "1" * 64},
        {"sequence": 99},
    ],
    ids=lambda change: next(iter(change)),
)
def test_the_first_changed_entry_is_named(place: int, change: dict[str, object]) -> None:
    entries = list(fill()[1].entries())
    entries[place] = replace(entries[place], **change)  # type: ignore[arg-type]
    assert verify_chain(entries) == place + 1


@pytest.mark.parametrize("place", range(5))
def test_removed_inserted_and_swapped_entries_are_found(place: int) -> None:
    entries = list(fill()[1].entries())
    removed = [*entries[:place], *entries[place + 1 :]]
    inserted = [*entries[:place], entries[5], *entries[place:]]
    swapped = [*entries[:place], entries[place + 1], entries[place], *entries[place + 2 :]]
    assert [verify_chain(bad) for bad in (removed, inserted, swapped)] == [place + 1] * 3


def test_a_log_cut_off_needs_a_head_kept_elsewhere() -> None:
    _, log = fill()
    cut: list[Entry] = list(log.entries())[:4]
    assert verify_chain(cut) is None
    assert verify_chain(cut, head=log.head()) == 5


@pytest.mark.parametrize("statement", ["UPDATE decision_log SET kind = 'x'", "DELETE FROM decision_log"])
def test_the_table_refuses_changes(statement: str) -> None:
    connection, _ = fill()
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        connection.execute(statement)


def test_a_damaged_body_on_disk_is_named(tmp_path: Path) -> None:
    connection, log = fill(tmp_path / "store.db")
    connection.execute("DROP TRIGGER decision_log_keeps")
    connection.execute("UPDATE decision_log SET body = '{broken' WHERE sequence = 3")
    assert verify_chain(log.entries()) == 3


def test_an_entry_falls_with_its_transaction() -> None:
    _, log = fill()

    def append_and_fail() -> None:
        with log.transaction():
            log.append("t1", "closed", {})
            raise KeyError

    with pytest.raises(KeyError):
        append_and_fail()
    assert len(list(log.entries())) == 6
    assert log.append("t1", "closed", {}).sequence == 7
    assert verify_chain(log.entries(), head=log.head()) is None


def test_a_transaction_adds_one_entry() -> None:
    _, log = fill()

    def append_twice() -> None:
        with log.transaction():
            log.append("t1", "closed", {})
            log.append("t1", "closed", {})

    with pytest.raises(AssertionError, match="one entry"):
        append_twice()
    assert len(list(log.entries())) == 6

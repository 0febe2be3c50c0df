"""Transactions of the store: alone or in groups, all or nothing, on disk when they say so."""

import asyncio
import os
import re
import sqlite3
from collections.abc import Callable, Coroutine
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from governed_tables import CALM, Person, stand_at_gate, yes_man

from reliability.governed.cases import KEY, draw_cases, make_seating
from roles.errors import InfrastructureError, UserError
from simulator.governance.proposal import ReviewResponse
from simulator.governance.runner import open_services, play_governed
from simulator.governance.store import Store, open_store, transaction


def add(store: Store, name: str) -> None:
    row = "INSERT INTO decision_log (thread, kind, body, at_s, own, previous, hash, seal)"
    store.execute(f"{row} VALUES (?, '', '', 0, '', '', '', '')", (name,))


def list_names(store: sqlite3.Connection) -> list[str]:
    return [name for (name,) in store.execute("SELECT thread FROM decision_log ORDER BY thread")]


def in_group(path: Path, work: Callable[[Store, sqlite3.Connection], Coroutine[Any, Any, None]]) -> list[str]:
    """Do the work in a group, beside another connection that sees what is on disk; the statements of both."""
    statements: list[str] = []

    async def run() -> None:
        store, other = open_store(path), sqlite3.connect(path)
        store.set_trace_callback(statements.append)
        with store.grouping():
            await work(store, other)
        store.close()
        other.close()

    asyncio.run(run())
    return [statement for statement in statements if re.match("BEGIN|COMMIT|PRAGMA", statement)]


def test_transactions_of_one_turn_of_the_loop_share_a_commit(tmp_path: Path) -> None:
    async def work(store: Store, other: sqlite3.Connection) -> None:
        async def write(number: int) -> None:
            with transaction(store):
                add(store, f"{number:02}")
            assert list_names(other) == []
            await store.committed()
            assert len(list_names(other)) == 50

        await asyncio.gather(*map(write, range(50)))

    assert in_group(tmp_path / "s.db", work) == ["BEGIN IMMEDIATE", "COMMIT"]


def test_outside_a_group_every_transaction_is_on_disk_at_its_end(tmp_path: Path) -> None:
    store, other = open_store(tmp_path / "s.db"), sqlite3.connect(tmp_path / "s.db")
    for number in range(3):
        with transaction(store):
            add(store, str(number))
        assert len(list_names(other)) == number + 1


def test_a_failure_takes_back_its_own_part_of_the_group_alone(tmp_path: Path) -> None:
    async def work(store: Store, other: sqlite3.Connection) -> None:
        with transaction(store):
            add(store, "a")

        def write_and_break() -> None:
            with transaction(store):
                add(store, "b")
                with transaction(store):
                    add(store, "c")
                raise ValueError("broken")

        with pytest.raises(ValueError, match="broken"):
            write_and_break()
        with transaction(store):
            add(store, "d")
        await store.committed()
        assert list_names(other) == ["a", "d"]

    in_group(tmp_path / "s.db", work)


def test_the_end_of_a_group_leaves_nothing_uncommitted(tmp_path: Path) -> None:
    async def work(store: Store, other: sqlite3.Connection) -> None:
        with store.grouping(), transaction(store):
            add(store, "a")
        assert list_names(other) == ["a"]
        with transaction(store):
            add(store, "b")

    in_group(tmp_path / "s.db", work)
    assert list_names(open_store(tmp_path / "s.db")) == ["a", "b"]


def test_a_group_with_a_gate_transaction_waits_for_the_disk(tmp_path: Path) -> None:
    async def work(store: Store, other: sqlite3.Connection) -> None:
        for number, durable in enumerate((False, True, False, True)):
            with transaction(store, durable=durable):
                add(store, str(number))
        assert list_names(other) == ["0"]
        await store.committed()
        assert len(list_names(other)) == 4
        with transaction(store):
            add(store, "4")

    assert in_group(tmp_path / "s.db", work) == [
        *("BEGIN IMMEDIATE", "COMMIT"),
        *("PRAGMA synchronous=FULL", "BEGIN IMMEDIATE", "COMMIT"),
        *("PRAGMA synchronous=NORMAL", "BEGIN IMMEDIATE", "COMMIT"),
    ]


def test_after_a_failed_commit_everybody_is_told_and_nothing_is_written(tmp_path: Path) -> None:
    """A commit cannot fail later than at a constraint that is checked at its end."""

    async def work(store: Store, other: sqlite3.Connection) -> None:
        store.execute("PRAGMA foreign_keys=ON")
        store.execute("CREATE TEMP TABLE parents (id INTEGER PRIMARY KEY)")
        store.execute("CREATE TEMP TABLE children (id REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED)")
        with transaction(store):
            add(store, "a")
        waiting = [asyncio.create_task(store.committed()) for _ in range(3)]
        await asyncio.gather(*waiting)
        with transaction(store):
            add(store, "b")
        waiting = [asyncio.create_task(store.committed()) for _ in range(3)]
        with transaction(store):
            store.execute("INSERT INTO children VALUES (7)")
        told = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(one) for one in told] == [InfrastructureError] * 3
        with pytest.raises(InfrastructureError, match="FOREIGN KEY"), transaction(store):
            add(store, "c")
        with pytest.raises(InfrastructureError, match="FOREIGN KEY"):
            await store.committed()

    in_group(tmp_path / "s.db", work)
    assert list_names(open_store(tmp_path / "s.db")) == ["a"]


def test_a_gate_transaction_does_not_outlive_the_commit_that_failed_before_it(tmp_path: Path) -> None:
    async def work(store: Store, other: sqlite3.Connection) -> None:
        store.execute("PRAGMA foreign_keys=ON")
        store.execute("CREATE TEMP TABLE parents (id INTEGER PRIMARY KEY)")
        store.execute("CREATE TEMP TABLE children (id REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED)")
        with transaction(store):
            store.execute("INSERT INTO children VALUES (7)")
        with pytest.raises(InfrastructureError, match="FOREIGN KEY"), transaction(store, durable=True):
            add(store, "a")

    in_group(tmp_path / "s.db", work)
    assert list_names(open_store(tmp_path / "s.db")) == []


@pytest.mark.parametrize(("is_batched", "fewest", "most"), [(True, 0.2, 1), (False, 10, 30)])
def test_many_episodes_share_their_commits(
    is_batched: bool, fewest: float, most: float, tmp_path: Path
) -> None:
    """Some fifteen transactions make an episode; 32 episodes side by side need fewer commits than that."""
    cases = [
        replace(case, case=replace(case.case, index=number)) for number, case in enumerate(draw_cases(1) * 32)
    ]
    statements: list[str] = []

    async def run() -> None:
        async with open_services(tmp_path / "s.db", key=KEY) as services:
            given = replace(services, is_batched=is_batched)
            services.connection.set_trace_callback(statements.append)
            seating = make_seating(cases)
            episodes = await play_governed(cases, given, seating, yes_man(), CALM, concurrency=32)
            assert {episode.status for episode in episodes} == {"completed"}

    asyncio.run(run())
    per_episode = statements.count("COMMIT") / len(cases)
    assert fewest < per_episode < most


@pytest.mark.parametrize("asks", [True, False])
def test_a_reviewers_answer_is_on_disk_before_anybody_acts_on_it(asks: bool, tmp_path: Path) -> None:
    def count_answers() -> int:
        with sqlite3.connect(tmp_path / "store0.db") as other:
            return int(
                other.execute("SELECT count(*) FROM decision_log WHERE kind = 'approved'").fetchone()[0]
            )

    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            (request,) = stand.services.desk.list_open()
            with stand.services.connection.grouping():
                if asks:
                    await stand.services.desk.ask(request, Person())
                else:
                    approve = ReviewResponse(decision="approve")
                    stand.services.desk.submit(request.interrupt_id, request.digest, approve, "ann")
                assert count_answers() == 1

    asyncio.run(run())


@pytest.mark.parametrize("is_batched", [True, False])
def test_a_full_disk_fails_episodes_that_can_be_taken_up(is_batched: bool, tmp_path: Path) -> None:
    cases, path = draw_cases(4), tmp_path / "s.db"

    async def run(most_pages: int | None) -> list[str]:
        async with open_services(path, key=KEY) as services:
            if most_pages is not None:
                services.connection.execute(f"PRAGMA max_page_count={most_pages}")
            given = replace(services, is_batched=is_batched)
            episodes = await play_governed(cases, given, make_seating(cases), yes_man(), CALM)
            errors = [episode.error or "" for episode in episodes if episode.status == "failed"]
            assert [error for error in errors if "disk is full" not in error] == []
            return [episode.status for episode in episodes]

    open_store(path).close()
    num_pages = sqlite3.connect(path).execute("PRAGMA page_count").fetchone()[0]
    assert "failed" in asyncio.run(run(num_pages + 20))
    assert set(asyncio.run(run(None))) == {"completed"}


def test_a_file_that_is_refused_is_closed_again(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    open_store(path).close()
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("CREATE VIEW stranger AS SELECT 1")
    with pytest.raises(
        UserError, match="'stranger'"
    ) as kept:  # keeps its traceback, and so what the frames hold
        open_store(path)
    opened = [os.path.realpath(entry) for entry in Path("/proc/self/fd").iterdir()]
    assert str(path) not in opened, kept.value

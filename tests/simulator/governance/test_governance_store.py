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
from simulator.governance.log import DecisionLog, verify_chain
from simulator.governance.proposal import ReviewResponse
from simulator.governance.runner import open_services, play_governed
from simulator.governance.store import open_store

Work = Callable[[DecisionLog, sqlite3.Connection], Coroutine[Any, Any, None]]


def add(log: DecisionLog, name: str) -> None:
    log.append(name, "said", {})


def list_names(store: sqlite3.Connection) -> list[str]:
    return [name for (name,) in store.execute("SELECT thread FROM decision_log ORDER BY thread")]


def open_at(path: Path) -> DecisionLog:
    store, file = open_store(path)
    return DecisionLog(store, lambda: 0, key=KEY, file=file)


def in_group(path: Path, work: Work) -> list[str]:
    """Do the work in a group, beside another connection that sees what is in the file; the statements."""
    statements: list[str] = []

    async def run() -> None:
        log, other = open_at(path), sqlite3.connect(path)
        log.store.set_trace_callback(statements.append)
        with log.grouping():
            await work(log, other)
        log.store.close()
        other.close()

    asyncio.run(run())
    return [statement for statement in statements if re.match("BEGIN|COMMIT|PRAGMA", statement)]


def test_transactions_of_one_turn_of_the_loop_share_a_commit(tmp_path: Path) -> None:
    async def work(log: DecisionLog, other: sqlite3.Connection) -> None:
        async def write(number: int) -> None:
            add(log, f"{number:02}")
            assert list_names(other) == []
            await log.committed()
            assert len(list_names(other)) == 50

        await asyncio.gather(*map(write, range(50)))

    assert in_group(tmp_path / "s.db", work) == ["BEGIN IMMEDIATE", "COMMIT"]


def test_outside_a_group_every_transaction_is_in_the_file_at_its_end(tmp_path: Path) -> None:
    log, other = open_at(tmp_path / "s.db"), sqlite3.connect(tmp_path / "s.db")
    for number in range(3):
        add(log, str(number))
        assert len(list_names(other)) == number + 1


def test_a_failure_takes_back_its_own_part_of_the_group_alone(tmp_path: Path) -> None:
    async def work(log: DecisionLog, other: sqlite3.Connection) -> None:
        add(log, "a")

        def write_and_break() -> None:
            with log.transaction():
                add(log, "b")
                raise ValueError("broken")

        with pytest.raises(ValueError, match="broken"):
            write_and_break()
        add(log, "d")
        await log.committed()
        assert list_names(other) == ["a", "d"]
        assert verify_chain(log.entries(), head=log.head()) is None

    in_group(tmp_path / "s.db", work)


def test_the_end_of_a_group_leaves_nothing_uncommitted(tmp_path: Path) -> None:
    async def work(log: DecisionLog, other: sqlite3.Connection) -> None:
        with log.grouping():
            add(log, "a")
        assert list_names(other) == ["a"]
        add(log, "b")

    in_group(tmp_path / "s.db", work)
    assert list_names(open_at(tmp_path / "s.db").store) == ["a", "b"]


def test_a_group_with_a_gate_transaction_waits_for_the_disk(tmp_path: Path) -> None:
    async def work(log: DecisionLog, other: sqlite3.Connection) -> None:
        for number, durable in enumerate((False, True, False, True)):
            log.append(str(number), "said", {}, durable=durable)
        assert list_names(other) == ["0"]
        await log.committed()
        assert len(list_names(other)) == 4
        add(log, "4")

    assert in_group(tmp_path / "s.db", work) == [
        *("BEGIN IMMEDIATE", "COMMIT"),
        *("PRAGMA synchronous=FULL", "BEGIN IMMEDIATE", "COMMIT"),
        *("PRAGMA synchronous=NORMAL", "BEGIN IMMEDIATE", "COMMIT"),
    ]


def make_breakable(log: DecisionLog) -> None:
    """A commit cannot fail later than at a constraint that is checked at its end."""
    log.store.execute("PRAGMA foreign_keys=ON")
    log.store.execute("CREATE TEMP TABLE parents (id INTEGER PRIMARY KEY)")
    log.store.execute("CREATE TEMP TABLE children (id REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED)")


def break_commit(log: DecisionLog) -> None:
    with log.transaction():
        log.store.execute("INSERT INTO children VALUES (7)")


def test_after_a_failed_commit_everybody_is_told_and_nothing_is_written(tmp_path: Path) -> None:
    async def work(log: DecisionLog, other: sqlite3.Connection) -> None:
        make_breakable(log)
        add(log, "a")
        waiting = [asyncio.create_task(log.committed()) for _ in range(3)]
        await asyncio.gather(*waiting)
        head = log.head()
        add(log, "b")
        waiting = [asyncio.create_task(log.committed()) for _ in range(3)]
        break_commit(log)
        told = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(one) for one in told] == [InfrastructureError] * 3
        with pytest.raises(InfrastructureError, match="FOREIGN KEY"):
            add(log, "c")
        with pytest.raises(InfrastructureError, match="FOREIGN KEY"):
            await log.committed()
        assert (log.head(), log.read("b")) == (head, [])

    in_group(tmp_path / "s.db", work)
    assert list_names(open_at(tmp_path / "s.db").store) == ["a"]


def test_a_gate_transaction_does_not_outlive_the_commit_that_failed_before_it(tmp_path: Path) -> None:
    async def work(log: DecisionLog, other: sqlite3.Connection) -> None:
        make_breakable(log)
        break_commit(log)
        with pytest.raises(InfrastructureError, match="FOREIGN KEY"):
            log.append("a", "said", {}, durable=True)

    in_group(tmp_path / "s.db", work)
    assert list_names(open_at(tmp_path / "s.db").store) == []


def test_outside_a_group_a_failed_commit_can_be_tried_again(tmp_path: Path) -> None:
    """As the review app does, which tells the reviewer to send the ruling again."""
    log = open_at(tmp_path / "s.db")
    make_breakable(log)
    add(log, "a")
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
        break_commit(log)
    log.append("b", "said", {}, durable=True)
    assert [entry.thread for entry in log.entries()] == ["a", "b"]
    assert verify_chain(log.entries(), head=log.head()) is None


def test_many_episodes_share_their_commits(tmp_path: Path) -> None:
    """Some fifteen transactions make an episode; 32 episodes side by side need fewer commits than that."""
    cases = [
        replace(case, case=replace(case.case, index=number)) for number, case in enumerate(draw_cases(1) * 32)
    ]
    statements: list[str] = []

    async def run() -> None:
        async with open_services(tmp_path / "s.db", key=KEY) as services:
            services.log.store.set_trace_callback(statements.append)
            seating = make_seating(cases)
            episodes = await play_governed(cases, services, seating, yes_man(), CALM, concurrency=32)
            assert {episode.status for episode in episodes} == {"completed"}

    asyncio.run(run())
    per_episode = statements.count("COMMIT") / len(cases)
    assert 0.2 < per_episode < 1


@pytest.mark.parametrize("asks", [True, False])
def test_a_reviewers_answer_is_on_disk_before_anybody_acts_on_it(asks: bool, tmp_path: Path) -> None:
    def count_answers() -> int:
        with sqlite3.connect(tmp_path / "store0.db") as other:
            return int(
                other.execute("SELECT count(*) FROM decision_log WHERE kind = 'approved'").fetchone()[0]
            )

    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            (request,) = stand.services.gate.list_open()
            with stand.services.log.grouping():
                if asks:
                    await stand.services.gate.ask(request.interrupt_id, Person())
                else:
                    approve = ReviewResponse(decision="approve")
                    stand.services.gate.submit(request.interrupt_id, request.digest, approve, "ann")
                assert count_answers() == 1

    asyncio.run(run())


def test_a_full_disk_fails_episodes_that_can_be_taken_up(tmp_path: Path) -> None:
    cases, path = draw_cases(4), tmp_path / "s.db"

    async def run(most_pages: int | None) -> list[str]:
        async with open_services(path, key=KEY) as services:
            if most_pages is not None:
                services.log.store.execute(f"PRAGMA max_page_count={most_pages}")
            episodes = await play_governed(cases, services, make_seating(cases), yes_man(), CALM)
            errors = [episode.error or "" for episode in episodes if episode.status == "failed"]
            assert [error for error in errors if "disk is full" not in error] == []
            return [episode.status for episode in episodes]

    open_store(path)[0].close()
    num_pages = sqlite3.connect(path).execute("PRAGMA page_count").fetchone()[0]
    assert "failed" in asyncio.run(run(num_pages + 20))
    assert set(asyncio.run(run(None))) == {"completed"}


def test_a_file_that_is_refused_is_closed_again(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    open_store(path)[0].close()
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("CREATE VIEW stranger AS SELECT 1")
    with pytest.raises(
        UserError, match="'stranger'"
    ) as kept:  # keeps its traceback, and so what the frames hold
        open_store(path)
    opened = [os.path.realpath(entry) for entry in Path("/proc/self/fd").iterdir()]
    assert str(path) not in opened, kept.value

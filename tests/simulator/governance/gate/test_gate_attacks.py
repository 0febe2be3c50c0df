"""A second list of attacks on the gate, its store and its key: refused, but for one limit that is stated."""

import asyncio
import os
import shutil
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from finality_probes import claim_approval, stop
from gate_probes import APPROVE, on_disk
from governed_tables import CALM, OTHER_KEY, Person, Stand, stand_at_gate, yes_man
from langgraph.types import Command

from reliability.governed.cases import KEY, draw_cases, make_seating
from roles.errors import InfrastructureError, UserError
from simulator.governance.proposal import ReviewResponse
from simulator.governance.runner import open_services, play_governed
from simulator.governance.seals import NotApprovedError, read_or_create_key
from simulator.governance.store import HighWaterMark

REJECT = ReviewResponse(decision="reject")


def attack(probe: Callable[[Stand], Awaitable[object]], folder: Path, *, four_eyes: bool = False) -> None:
    """Try it on a case at the gate; nothing may be committed, carried out or left unsound."""

    async def run() -> None:
        async with stand_at_gate(folder, four_eyes=four_eyes) as stand:
            await probe(stand)
            assert stand.count("committed") == 0
            assert not {"committed", "executed", "observed"} & set(stand.kinds())
            assert stand.is_sound()

    asyncio.run(run())


def play(path: Path, *, key: bytes = KEY, num_cases: int = 1) -> list[str]:
    """Play cases before a person who approves all; their statuses."""
    cases = draw_cases(num_cases)

    async def run() -> list[str]:
        async with open_services(path, key=key) as services:
            services.reviewers.register("ann")
            episodes = await play_governed(cases, services, make_seating(cases), Person(), CALM)
        return [episode.status for episode in episodes]

    return asyncio.run(run())


def copy_store(path: Path, to: Path) -> None:
    with sqlite3.connect(path) as source, sqlite3.connect(to) as target:
        source.backup(target)
    source.close()
    target.close()


def test_an_old_copy_of_the_store_is_noticed(tmp_path: Path) -> None:
    path, old = tmp_path / "s.db", tmp_path / "old.db"
    play(path)
    copy_store(path, old)
    play(path, num_cases=2)
    shutil.copy(old, path)
    with pytest.raises(UserError, match="this is an old copy"):
        play(path)


def test_an_old_copy_is_noticed_after_a_kill(tmp_path: Path) -> None:
    """The mark follows every commit, not only a store that is closed in order."""
    path, old = tmp_path / "s.db", tmp_path / "old.db"
    play(path)
    copy_store(path, old)

    async def run() -> None:
        async with open_services(path, key=KEY) as services:
            services.reviewers.register("ann")
            cases = draw_cases(2)
            await play_governed(cases, services, make_seating(cases), Person(), CALM)
            services.log.mark = None  # as a kill leaves it

    asyncio.run(run())
    shutil.copy(old, path)
    with pytest.raises(UserError, match="this is an old copy"):
        play(path)


def test_limit_a_copy_that_was_gone_on_with_under_the_key_is_believed(tmp_path: Path) -> None:
    """Stated in SECURITY.md: with the key it is a continuation; with another key it is refused."""
    path, copy = tmp_path / "s.db", tmp_path / "copy.db"
    play(path)
    copy_store(path, copy)
    with pytest.raises(UserError):
        play(copy, key=OTHER_KEY)
    copy.with_name("copy.db.mark").unlink()
    play(copy, num_cases=2)
    path.unlink()
    copy_store(copy, path)
    assert len(play(path, num_cases=2)) == 2


def test_a_log_that_was_cut_off_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    play(path)
    on_disk(path, "DELETE FROM decision_log WHERE kind = 'closed'")
    with pytest.raises(UserError, match="its log was changed"):
        play(path)


def test_a_lost_write_ahead_log_is_noticed(tmp_path: Path) -> None:
    """A kill leaves the newest rulings in a file beside the store; without it the store is an old copy."""
    path, copy = tmp_path / "s.db", tmp_path / "t.db"

    async def run() -> None:
        async with open_services(path, key=KEY) as services:
            services.reviewers.register("ann")
            cases = draw_cases(1)
            await play_governed(cases, services, make_seating(cases), Person(), CALM)
            shutil.copy(path, copy)
            shutil.copy(path.with_name("s.db.mark"), copy.with_name("t.db.mark"))

    asyncio.run(run())
    with pytest.raises(UserError, match="this is an old copy"):
        play(copy)


@pytest.mark.parametrize("content", [b"\xff" * 150, b"7 " + b"0" * 64 + b" " + b"0" * 64, b"{}"])
def test_a_mark_of_nobody_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    play(path)
    path.with_name("s.db.mark").write_bytes(content)
    with pytest.raises(UserError, match="holds no mark that was written with this key"):
        play(path)


def test_a_mark_moves_forward_only_and_belongs_to_its_key(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    play(path)
    mark = HighWaterMark(path.with_name("s.db.mark"), key=KEY)
    head = mark.read()
    mark.advance(head._replace(sequence=1, hash="0" * 64), durable=True)
    assert mark.read() == head
    mark.close()
    with pytest.raises(UserError, match="written with this key"):
        play(path, key=OTHER_KEY)


def test_who_deletes_the_mark_too_is_believed(tmp_path: Path) -> None:
    """The limit that governance.md states."""
    path, old = tmp_path / "s.db", tmp_path / "old.db"
    play(path)
    copy_store(path, old)
    play(path, num_cases=2)
    shutil.copy(old, path)
    path.with_name("s.db.mark").unlink()
    assert play(path) == ["completed"]


@pytest.mark.parametrize("second", ["ann", "ANN", "\uff41nn", "simulated", "bob"])
def test_four_eyes_are_two_registered_people(second: str, tmp_path: Path) -> None:
    async def probe(stand: Stand) -> None:
        stand.services.reviewers.register("ann")
        with pytest.raises(NotApprovedError):
            stand.services.gate.submit((await stand.request()).interrupt_id, "0" * 64, APPROVE, "ann")
        (request,) = stand.services.gate.list_open()
        stand.services.gate.submit(request.interrupt_id, request.digest, APPROVE, "ann")
        if second in ("ANN", "\uff41nn"):
            with pytest.raises(NotApprovedError):
                stand.services.reviewers.register(second)
        with pytest.raises(NotApprovedError):
            stand.services.gate.submit(request.interrupt_id, request.digest, APPROVE, second)
        await stand.rule_past_desk(reviewer=second)

    attack(probe, tmp_path, four_eyes=True)


def test_the_simulated_reviewer_is_no_eye_of_four(tmp_path: Path) -> None:
    cases, path = draw_cases(1), tmp_path / "s.db"

    async def run() -> None:
        async with open_services(path, key=KEY, four_eyes=True) as services:
            for _ in range(2):
                (episode,) = await play_governed(cases, services, make_seating(cases), yes_man(), CALM)
                assert episode.status == "waiting"
            assert "approved" not in [entry.kind for entry in services.log.entries()]

    asyncio.run(run())


def test_a_store_of_four_eyes_stays_one(tmp_path: Path) -> None:
    """Opened again without the option, it still asks for two."""
    cases, path = draw_cases(1), tmp_path / "s.db"

    async def run(*, four_eyes: bool) -> str:
        async with open_services(path, key=KEY, four_eyes=four_eyes) as services:
            services.reviewers.register("ann")
            (episode,) = await play_governed(cases, services, make_seating(cases), Person(), CALM)
        return episode.status

    assert asyncio.run(run(four_eyes=True)) == "waiting"
    assert asyncio.run(run(four_eyes=False)) == "waiting"


@pytest.mark.parametrize("name", ["\uff43\uff54\uff4f", "\u1d9cto", "RECONCILE"])
def test_a_seat_in_other_letters_is_a_seat(name: str, tmp_path: Path) -> None:
    async def probe(stand: Stand) -> None:
        with pytest.raises(NotApprovedError):
            stand.services.reviewers.register(name)
        await stand.rule_past_desk(reviewer=name)

    attack(probe, tmp_path)


@pytest.mark.parametrize("name", ["mallory", "simulated", "terminal", "absent"])
def test_the_desk_signs_for_registered_names_alone(name: str, tmp_path: Path) -> None:
    async def probe(stand: Stand) -> None:
        (request,) = stand.services.gate.list_open()
        with pytest.raises(NotApprovedError, match=r"registered|no person"):
            stand.services.gate.submit(request.interrupt_id, request.digest, APPROVE, name)

    attack(probe, tmp_path)


def test_a_good_signature_of_an_unregistered_reviewer_is_none(tmp_path: Path) -> None:
    async def probe(stand: Stand) -> None:
        await stand.rule_past_desk(reviewer="mallory")
        refused = [entry.body["reason"] for entry in stand.services.log.entries() if entry.kind == "refused"]
        assert refused == ["unregistered"]

    attack(probe, tmp_path)


def test_no_words_reach_the_reviewer_beside_the_proposal(tmp_path: Path) -> None:
    """The one field that is shown and not under the digest comes from the log."""

    async def probe(stand: Stand) -> None:
        await stand.graph.aupdate_state(
            stand.config, {"status": "Ann has approved this; please confirm."}, as_node="propose"
        )
        await stand.go()
        assert [request.refusal for request in stand.services.gate.list_open()] == [""]

    attack(probe, tmp_path)


LEAVES_OUT = "ON decision_log (thread, sequence) WHERE kind NOT IN ('asked', 'closed')"
CHANGES = {
    "a trigger": [
        "CREATE TRIGGER theirs BEFORE INSERT ON decision_log WHEN NEW.kind = 'rejected'"
        " BEGIN SELECT RAISE(IGNORE); END"
    ],
    "a view": ["CREATE VIEW theirs AS SELECT 1"],
    "a table": ["CREATE TABLE theirs (x)"],
    "a trigger less": ["DROP TRIGGER decision_log_stays"],
    "a partial index": [
        "DROP INDEX decision_log_of_thread",
        f"CREATE INDEX decision_log_of_thread {LEAVES_OUT}",
    ],
    "a partial index of another name": [
        "DROP INDEX decision_log_of_thread",
        f"CREATE INDEX theirs {LEAVES_OUT}",
    ],
    "a partial index besides": [f"CREATE INDEX theirs {LEAVES_OUT}"],
}


def change_parts(path: Path, change: str) -> None:
    with sqlite3.connect(path) as connection:
        for statement in CHANGES[change]:
            connection.execute(statement)
    connection.close()


@pytest.mark.parametrize("change", CHANGES)
def test_a_store_of_other_parts_writes_nothing(change: str, tmp_path: Path) -> None:
    """Put into the file while the store is open: no ruling is taken, nothing is carried out."""

    async def probe(stand: Stand) -> None:
        change_parts(stand.path, change)
        with pytest.raises(InfrastructureError, match="is not as a store has it"):
            await stand.rule(REJECT)
        with pytest.raises(InfrastructureError, match="is not as a store has it"):
            await stand.rule()

    attack(probe, tmp_path)


@pytest.mark.parametrize("change", [one for one in CHANGES if "less" not in one])
def test_a_store_of_other_parts_is_not_opened(change: str, tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    play(path)
    change_parts(path, change)
    with pytest.raises(UserError, match="is not as this version's stores have it"):
        play(path)


def put_another_row_in_the_index(path: Path, number: int, thread: str, other: int) -> None:
    """Give the index the name and SQL that it should have, and another thread's row in place of one."""
    with sqlite3.connect(path) as connection:
        (sql,) = connection.execute(
            "SELECT sql FROM sqlite_master WHERE name = 'decision_log_of_thread'"
        ).fetchone()
        connection.execute("DROP INDEX decision_log_of_thread")
        connection.execute(
            "CREATE INDEX decision_log_of_thread ON decision_log (CASE sequence"
            f" WHEN {number} THEN 'nobody' WHEN {other} THEN '{thread}' ELSE thread END, sequence)"
        )
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'decision_log_of_thread'", (sql,))
    connection.close()


def test_an_index_that_puts_another_row_in_place_of_a_removal_is_noticed(tmp_path: Path) -> None:
    """As many entries, each under a good seal, and the same last one: but the removal is not among them."""
    path = tmp_path / "s.db"

    async def run() -> None:
        async with open_services(path, key=KEY) as services:
            reviewers = services.reviewers
            reviewers.register("ann")
            reviewers.note_seated("another", "cto", "bob")
            reviewers.remove("ann")
            reviewers.register("carl")
        put_another_row_in_the_index(path, 3, "", 2)
        async with open_services(path, key=KEY) as services:
            with pytest.raises(NotApprovedError, match=r"not as it was written|taken out"):
                services.reviewers.list_registered()

    asyncio.run(run())


async def answer_honestly(stand: Stand) -> None:
    await stand.rule()


async def reject_honestly(stand: Stand) -> None:
    await stand.rule(REJECT)


@pytest.mark.parametrize("by", ["copy", "cut"])
@pytest.mark.parametrize("honestly", [answer_honestly, reject_honestly])
def test_a_live_store_notices_what_is_taken_back(
    honestly: Callable[[Stand], Awaitable[None]], by: str, tmp_path: Path
) -> None:
    """An old copy is put back under an open store, or its log is cut: nothing happens a second time."""

    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            old, num_before = tmp_path / "old.db", len(stand.kinds())
            copy_store(stand.path, old)
            (request,) = stand.services.gate.list_open()
            await honestly(stand)
            if by == "copy":
                copy_store(old, stand.path)
            else:
                on_disk(stand.path, "DELETE FROM decision_log WHERE sequence > ?", (num_before,))
            with suppress(NotApprovedError):
                assert not stand.services.gate.list_open(), "ruled on, and listed again"
            with pytest.raises((NotApprovedError, InfrastructureError)):
                stand.services.gate.submit(request.interrupt_id, request.digest, APPROVE, "ann")
            with suppress(InfrastructureError, LookupError):
                await answer_honestly(stand)
            assert len(stand.kinds()) == num_before, "something was added to the old log"

    asyncio.run(run())


def test_what_another_process_wrote_is_missed_too(tmp_path: Path) -> None:
    """The mark tells of it: the log is cut to what this process has seen."""

    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            number = len(stand.kinds())
            async with open_services(stand.path, key=KEY, clock=stand.clock) as other:
                other.reviewers.note_seated("another", "cto", "bob")
            on_disk(stand.path, "DELETE FROM decision_log WHERE sequence > ?", (number,))
            with pytest.raises(InfrastructureError, match="lacks entry"):
                stand.services.reviewers.note_seated("another", "cto", "bob")

    asyncio.run(run())


def test_nobody_else_may_read_the_store(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    path.touch(mode=0o644)
    play(path)

    async def run() -> None:
        async with open_services(path, key=KEY):
            assert {oct(one.stat().st_mode & 0o777) for one in tmp_path.iterdir()} == {"0o600"}
            assert len(list(tmp_path.iterdir())) == 4  # with the mark and SQLite's files

    asyncio.run(run())


def test_an_approval_in_a_copy_of_the_store_is_none_here(tmp_path: Path) -> None:
    """Given in a copy, its entry brought to the original, which has gone on meanwhile."""

    async def probe(stand: Stand) -> None:
        copy_store(stand.path, tmp_path / "copy.db")
        (request,) = stand.services.gate.list_open()
        async with open_services(tmp_path / "copy.db", key=KEY, clock=stand.clock) as other:
            other.gate.submit(request.interrupt_id, request.digest, APPROVE, "ann")
        with sqlite3.connect(tmp_path / "copy.db") as connection:
            row = connection.execute("SELECT * FROM decision_log WHERE kind = 'approved'").fetchone()
        connection.close()
        stand.services.reviewers.note_seated("another", "cto", "bob")
        with sqlite3.connect(stand.path) as connection:
            connection.execute(
                "INSERT INTO decision_log VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (row[0] + 1, *row[1:])
            )
        connection.close()
        with pytest.raises(NotApprovedError, match="not as it was written"):
            stand.services.gate.find_answer(request.interrupt_id)
        assert await stand.answer(True) is None
        on_disk(stand.path, "DELETE FROM decision_log WHERE sequence = ?", (row[0] + 1,))

    attack(probe, tmp_path)


def test_two_desks_sign_one_answer(tmp_path: Path) -> None:
    async def probe(stand: Stand) -> None:
        (request,) = stand.services.gate.list_open()
        async with open_services(stand.path, key=KEY, clock=stand.clock) as other:
            other.gate.submit(request.interrupt_id, request.digest, REJECT, "ann")
            with pytest.raises(NotApprovedError, match="was settled"):
                stand.services.gate.submit(request.interrupt_id, request.digest, APPROVE, "ann")
            assert stand.services.gate.list_open() == []

    attack(probe, tmp_path)


def test_what_is_observed_of_a_closed_case_is_refused(tmp_path: Path) -> None:
    """Found by the sequences of test_gate_sequences.py: time travel to the monitor of a closed case."""

    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            await stop(stand, "monitor", await stand.submit())
            before = (await stand.graph.aget_state(stand.config)).config
            await stand.go()
            kinds = stand.kinds()
            assert kinds[-1] == "closed"
            await stand.go(None, before)
            await stand.go(Command(goto="monitor"), before)
            assert stand.kinds() == kinds

    asyncio.run(run())


def test_a_second_plan_is_claimed_for_a_later_attempt(tmp_path: Path) -> None:
    """A re-plan is claimed after a commit: the new proposal has no approval of its own."""

    async def run() -> None:
        async with stand_at_gate(tmp_path) as stand:
            await stop(stand, "monitor", await stand.submit())
            await stand.jump("replan")
            await stand.jump("propose", shown=1)
            assert stand.count("requested") == 2
            await claim_approval(stand)
            assert stand.count("committed") == 1

    asyncio.run(run())


@pytest.mark.parametrize("kind", ["fifo", "folder", "zero", "another user's", "readable"])
def test_a_key_that_somebody_else_made_is_refused(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.db.key"
    if kind == "fifo":
        os.mkfifo(path, 0o600)
    elif kind == "folder":
        path.mkdir()
    elif kind == "zero":
        path.symlink_to("/dev/zero")
    else:
        path.write_text("ab" * 32)
        path.chmod(0o644 if kind == "readable" else 0o600)
    if kind == "another user's":
        stat = os.fstat
        monkeypatch.setattr(
            os,
            "fstat",
            lambda descriptor: os.stat_result([*stat(descriptor)[:4], 4711, *stat(descriptor)[5:10]]),
        )
    with pytest.raises(UserError):
        read_or_create_key(path)


@pytest.mark.parametrize(
    "content", [b"SQLite format 3\x00", b"SQLite format 3\x00" + b"\xff" * 5000, b"no database" * 9]
)
def test_a_file_that_is_no_store_is_named(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    path.write_bytes(content)
    with pytest.raises(UserError, match="cannot be used"):
        play(path)

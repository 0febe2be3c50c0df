"""R15: two or three live processes on one store, which somebody rolls back, cuts, hides rows of and replays.

Whoever does it may write the store's file and has neither the key nor the mark. The parent keeps all that the
processes have written: no effect is done twice, and nothing is ruled, committed or carried out while the
store lacks an entry that was written before.
"""

import asyncio
import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from reliability.governed.cases import KEY, draw_cases, make_seating, worlds
from reliability.trials import Trial, Trials
from roles.errors import InfrastructureError, UserError
from simulator.governance.proposal import ReviewResponse, Ruling
from simulator.governance.reviewers import AbsentReviewer
from simulator.governance.runner import GovernanceServices, open_services, play_governed
from simulator.governance.seals import NotApprovedError

if TYPE_CHECKING:
    from reliability.stages.prepared_runs import PreparedRuns

STEPS = 14
CASES = draw_cases(2)
RULED = ("approved", "edited", "rejected", "committed", "executed")
Written = list[tuple[str, str, str]]  # kind, what it is about, hash
REFUSALS = (UserError, InfrastructureError, NotApprovedError)


async def _work(path: Path, pipe: Connection) -> None:
    """Do what the parent asks, and tell what was written."""
    try:
        async with open_services(path, key=KEY) as services:
            services.reviewers.register("ann")
            while True:
                pipe.send(_read_written(services))
                command, number, decision = pipe.recv()
                with suppress(*REFUSALS):
                    if command == "play":
                        seating, calm = make_seating(CASES), worlds(shock_share=0.0)
                        await play_governed(CASES, services, seating, AbsentReviewer(), calm)
                    elif command == "rule" and (waiting := services.gate.list_open()):
                        request = waiting[number % len(waiting)]
                        edit = "none" if decision == "edit" else None
                        response = ReviewResponse(decision=decision, option=edit)
                        services.gate.submit(request.interrupt_id, request.digest, response, "ann")
    except (*REFUSALS, sqlite3.Error):
        pipe.send(None)


def _read_written(services: GovernanceServices) -> Written:
    """What this process has written since it was asked last."""
    written, _OWN[:] = list(_OWN), []
    return written


_OWN: Written = []  # of this process


def _serve(path: Path, pipe: Connection) -> None:
    from simulator.governance.log import DecisionLog, Entry

    insert = DecisionLog._insert
    commit = DecisionLog._commit
    open_entries: Written = []

    def note(self: DecisionLog) -> Entry | None:
        entry = insert(self)
        if entry is not None:
            about = f"{entry.thread} {entry.body.get('digest')} {entry.body.get('role')}"
            open_entries[:] = [(entry.kind, about, entry.hash)]
        return entry

    def keep(self: DecisionLog) -> None:
        commit(self)
        _OWN.extend(open_entries)
        open_entries.clear()

    DecisionLog._insert, DecisionLog._commit = note, keep  # type: ignore[method-assign]
    asyncio.run(_work(path, pipe))
    os._exit(0)


class Process:
    """A live process on the store; its answers tell what it wrote."""

    def __init__(self, path: Path) -> None:
        context = multiprocessing.get_context("fork")
        self.pipe, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(path, other), daemon=True)
        self._process.start()
        other.close()
        self.is_alive = True
        self.first = self._receive()

    def ask(self, command: str, number: int, decision: str) -> Written:
        """Let it do something; [] of one that has ended."""
        if not self.is_alive:
            return []
        try:
            self.pipe.send((command, number, decision))
        except OSError:
            self.is_alive = False
            return []
        return self._receive()

    def _receive(self) -> Written:
        try:
            written: Written | None = self.pipe.recv()
        except EOFError:
            written = None
        self.is_alive = written is not None
        return written or []

    def kill(self) -> None:
        if self._process.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)
        self._process.join()
        self.pipe.close()
        self.is_alive = False


class Schedule:
    """One random schedule; `problem` says what went wrong."""

    def __init__(self, folder: Path, number: int) -> None:
        self.path, self.rng = folder / "store.db", random.Random(f"schedule/{number}")
        self._folder, self.problem = folder, ""
        self._written: set[str] = set()
        self._effects: set[str] = set()
        self._copies: list[Path] = []
        self.num_lost = self.num_effects = 0
        self.processes = [self._start() for _ in range(2 + number % 2)]

    def run(self) -> str:
        """Run all steps; return what went wrong."""
        steps = ("play", "play", "play", "rule", "rule", "rule", "copy", "kill")
        harms = ("roll_back", "replace", "cut", "hide", "replay", "mend")
        try:
            for _ in range(STEPS):
                kind = self.rng.choice(steps if self.rng.random() < 0.65 else harms)
                if kind in ("play", "rule"):
                    self._let(kind)
                else:
                    with suppress(sqlite3.Error):
                        getattr(self, f"_{kind}")()
            self._replace_newest()
            for kind in ("play", "rule", "play"):
                self._let(kind)
        finally:
            for one in self.processes:
                one.kill()
        return self.problem

    def _start(self) -> Process:
        is_lost = self._lacks()
        process = Process(self.path)
        self._note(process.first, is_lost)
        return process

    def _let(self, command: str) -> None:
        number = self.rng.randrange(len(self.processes))
        if not self.processes[number].is_alive:
            self.processes[number].kill()
            self.processes[number] = self._start()
        is_lost = self._lacks()
        decision: Ruling = self.rng.choice(("approve", "approve", "reject", "edit"))
        self._note(self.processes[number].ask(command, self.rng.randrange(9), decision), is_lost)

    def _note(self, written: Written, is_lost: bool) -> None:
        for kind, about, hashed in written:
            if is_lost and kind in RULED:
                self.problem = f"{kind} on a store that lost entries"
            if kind == "executed":
                self.num_effects += 1
                if about in self._effects:
                    self.problem = f"done twice: {about}"
                self._effects.add(about)
            self._written.add(hashed)
        if written and not is_lost:
            self._keep("newest")

    def _lacks(self) -> bool:
        """Whether the store, as its rows are, lacks something that was written."""
        try:
            with closing(sqlite3.connect(self.path)) as store:
                rows = store.execute("SELECT hash FROM decision_log NOT INDEXED").fetchall()
        except sqlite3.Error:
            return bool(self._written)
        is_lost = not self._written <= {hashed for (hashed,) in rows}
        self.num_lost += is_lost
        return is_lost

    def _keep(self, name: str) -> Path:
        copy = self._folder / f"{name}.db"
        with closing(sqlite3.connect(self.path)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
        return copy

    def _copy(self) -> None:
        self._copies.append(self._keep(f"copy{len(self._copies)}"))

    def _kill(self) -> None:
        number = self.rng.randrange(len(self.processes))
        self.processes[number].kill()
        self.processes[number] = self._start()

    def _roll_back(self) -> None:
        """Write an old copy over the live file, as SQLite's own backup does."""
        if self._copies:
            old = self.rng.choice(self._copies)
            with closing(sqlite3.connect(old)) as source, closing(sqlite3.connect(self.path)) as target:
                source.backup(target)

    def _replace(self) -> None:
        """Put another file in the place of the live one."""
        if self._copies:
            self._put(self.rng.choice(self._copies))

    def _put(self, copy: Path) -> None:
        for suffix in ("-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        fresh = self._folder / "fresh.db"
        shutil.copy(copy, fresh)
        os.replace(fresh, self.path)

    def _cut(self) -> None:
        keep = self.rng.randint(1, 30)
        self._write_unguarded(
            [f"DELETE FROM decision_log WHERE sequence > (SELECT max(sequence) - {keep} FROM decision_log)"]
        )

    def _hide(self) -> None:
        kind = self.rng.choice(("asked", "rejected", "approved", "executed", "closed", "removed"))
        where = f"ON decision_log (thread, sequence) WHERE kind != '{kind}'"
        index = ["DROP INDEX decision_log_of_thread", f"CREATE INDEX decision_log_of_thread {where}"]
        view = [
            "ALTER TABLE decision_log RENAME TO theirs",
            f"CREATE VIEW decision_log AS SELECT * FROM theirs WHERE kind != '{kind}'",
        ]
        rows = [f"DELETE FROM decision_log WHERE kind = '{kind}'"]
        self._write_unguarded(self.rng.choice((index, view, rows)))

    def _replay(self) -> None:
        """Add rows that were genuine once, at the end or in their place."""
        if not self._copies:
            return
        with closing(sqlite3.connect(self.rng.choice(self._copies))) as store:
            rows = store.execute("SELECT * FROM decision_log").fetchall()
        shift = self.rng.choice((0, 1))
        with closing(sqlite3.connect(self.path)) as store, store:
            (last,) = store.execute("SELECT coalesce(max(sequence), 0) FROM decision_log").fetchone()
            for row in self.rng.sample(rows, min(3, len(rows))):
                number = last + 1 if shift else row[0]
                last += shift
                values = (number, *row[1:])
                store.execute("INSERT OR IGNORE INTO decision_log VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)

    def _mend(self) -> None:
        self._replace_newest()

    def _replace_newest(self) -> None:
        """Put back the newest store; processes that stopped writing are started anew."""
        newest = self._folder / "newest.db"
        for one in self.processes:
            one.kill()
        if newest.exists():
            self._put(newest)
        self.processes = [self._start() for _ in self.processes]

    def _write_unguarded(self, statements: list[str]) -> None:
        with closing(sqlite3.connect(self.path)) as store, store:
            triggers = store.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
            for name, _ in triggers:
                store.execute(f"DROP TRIGGER {name}")
            for statement in statements:
                store.execute(statement)
            for _, text in triggers:
                with suppress(sqlite3.Error):
                    store.execute(text)


def run_schedule(number: int) -> tuple[str, int, int]:
    """What went wrong, how often the store lacked entries, and how many effects were done."""
    with tempfile.TemporaryDirectory() as folder:
        schedule = Schedule(Path(folder), number)
        return schedule.run(), schedule.num_lost, schedule.num_effects


def store_schedules(runs: "PreparedRuns", count: int) -> Trials:
    """Yield so many random schedules, of two and three live processes in turn."""
    yield from _list_trials(count)


def _list_trials(count: int) -> Iterator[Trial]:
    for number in range(count):
        group = "three processes" if number % 2 else "two processes"
        yield Trial(f"{number}", group, lambda number=number: run_schedule(number)[0])  # type: ignore[misc]

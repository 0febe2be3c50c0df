"""The SQLite file of a store: one append-only table, transactions that are all or nothing, and its mark.

While many episodes are played, the transactions of one turn of the event loop are committed together. The
mark, a file beside the store, tells how far the log had come: an old copy of the store, or a log that was
cut off, lacks an entry that the mark knows. Whoever can write both files can take both back, or delete the
mark: keep it on another disk, or under another user, against that.
"""

import asyncio
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple, Protocol

from roles.errors import InfrastructureError, UserError
from simulator.governance.seals import is_sealed, seal

BUSY_TIMEOUT_MS = 30_000
GENESIS = "0" * 64  # stands before the first entry of the decision log
WAL_PAGES = 4_000  # of 4 KiB, after which the write-ahead log is copied into the file
MARK_BYTES = 320  # of the mark's file: it is written over in place, in one call
BOOT_FILE = Path("/proc/sys/kernel/random/boot_id")  # another one after every start of the machine
_SCHEMA = """
CREATE TABLE IF NOT EXISTS decision_log (
    sequence INTEGER PRIMARY KEY, thread TEXT NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL,
    at_s INTEGER NOT NULL, own TEXT NOT NULL, previous TEXT NOT NULL, hash TEXT NOT NULL, seal TEXT NOT NULL
) STRICT;
CREATE TRIGGER IF NOT EXISTS decision_log_keeps BEFORE UPDATE ON decision_log
    BEGIN SELECT RAISE(ABORT, 'the decision log is append-only'); END;
CREATE TRIGGER IF NOT EXISTS decision_log_stays BEFORE DELETE ON decision_log
    BEGIN SELECT RAISE(ABORT, 'the decision log is append-only'); END;
CREATE INDEX IF NOT EXISTS decision_log_of_thread ON decision_log (thread, sequence);
"""


class LogHead(NamedTuple):
    """The last entry of the decision log; of an empty one LogHead(0, GENESIS).

    Example: LogHead(sequence=7, hash="9f2c...")
    """

    sequence: int
    hash: str


class Keeper(Protocol):
    """Watches over the transactions of a store: the decision log, with the store's mark."""

    def begin(self) -> None:
        """Look at the file once nobody else can write; raises OSError where it is not the one it was."""

    def commit(self, *, durable: bool) -> None:
        """Hear that all is in the file; raises OSError."""

    def undo(self, *, is_over: bool) -> None:
        """Hear that something was taken back; `is_over`: with the whole transaction."""


class _Group:
    """Transactions that are committed together."""

    def __init__(self) -> None:
        self.done, self.error = asyncio.Event(), ""


class Store(sqlite3.Connection):
    """The open file. Use `transaction` to write to it.

    Inside `grouping` a transaction that has ended is seen by this process at once, but is on disk only when
    `committed` returns. Commits keep the order of transactions: a later one is never there without an
    earlier one. After a commit that failed nothing is written any more until the file is opened again.
    """

    keeper: Keeper | None = None
    place: Path | None = None  # of the file; None: in memory
    file: tuple[int, int] = (0, 0)  # its device and number
    is_inside = False  # a transaction of ours is under way
    _is_durable = False  # the last one that was begun waits for the disk
    _num_groupings = 0
    _group: _Group | None = None
    _error = ""  # of the commit that failed

    @contextmanager
    def grouping(self) -> Iterator[None]:
        """Commit transactions together meanwhile; the event loop must be running. May be nested."""
        self._num_groupings += 1
        try:
            yield
        finally:
            self._num_groupings -= 1
            self.flush()

    async def committed(self) -> None:
        """Wait until all transactions that have ended are on disk.

        Raises:
            InfrastructureError: a commit failed, the disk being full for example.
        """
        group, error = self._group, self._error
        if group is not None:
            await group.done.wait()
            error = group.error
        if error:
            raise InfrastructureError(error)

    def commit_now(self) -> None:
        """Commit what has ended, without waiting for the others of the group.

        Raises:
            InfrastructureError: see `committed`.
        """
        self.flush()
        if self._error:
            raise InfrastructureError(self._error)

    def flush(self) -> None:
        """Commit what has ended and is not committed; nothing is raised, `committed` tells."""
        group = self._group
        if group is None:
            return
        try:
            self._commit()
        except (sqlite3.Error, OSError) as error:
            self._fail(str(error))
        else:
            self._group = None
            group.done.set()

    def begin(self, *, durable: bool) -> None:
        """Open a transaction, or in `grouping` the next one of the group. See `transaction`."""
        if self._error:
            raise InfrastructureError(self._error)
        if self._num_groupings:
            self._open_group(durable=durable)
            self.execute("SAVEPOINT one")
        else:
            self._begin(durable=durable)
        self.is_inside = True

    def end(self) -> None:
        """Keep what was done since `begin`: committed, or in `grouping` with the group."""
        self.is_inside = False
        if self._group is not None:
            self.execute("RELEASE one")
        else:
            self._commit()

    def undo(self, error: BaseException) -> None:
        """Take back what was done since `begin`, because of this error."""
        self.is_inside = False
        if not self.in_transaction:  # a full disk has taken back everything, the rest of the group too
            self._fail(str(error))
        elif self._group is not None:
            self.execute("ROLLBACK TO one")
            self.execute("RELEASE one")
        else:
            self.execute("ROLLBACK")
        if self.keeper is not None:
            self.keeper.undo(is_over=not self.in_transaction)

    def _open_group(self, *, durable: bool) -> None:
        if self._group is not None and durable and not self._is_durable:
            self.commit_now()  # how long a commit waits for the disk cannot be changed inside it
        if self._group is not None:
            return
        self._begin(durable=durable)
        self._group = group = _Group()
        asyncio.get_running_loop().call_soon(self._flush_group, group)

    def _begin(self, *, durable: bool) -> None:
        if durable != self._is_durable:
            self.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._is_durable = durable
        self.execute("BEGIN IMMEDIATE")
        try:
            if self.place is not None and _identify(self.place) != self.file:
                raise OSError("another file stands in its place")
            foreign = _find_foreign(self)
            if foreign is not None:
                raise OSError(f"{foreign!r} in it is not as a store has it")
            if self.keeper is not None:
                self.keeper.begin()
        except BaseException as error:
            self.execute("ROLLBACK")
            if self.keeper is not None:
                self.keeper.undo(is_over=True)
            if isinstance(error, OSError):
                self._fail(str(error))
            raise

    def _commit(self) -> None:
        try:
            self.execute("COMMIT")
        except sqlite3.Error:
            with suppress(sqlite3.Error):
                self.execute("ROLLBACK")
            if self.keeper is not None:
                self.keeper.undo(is_over=True)
            raise
        if self.keeper is not None:
            self.keeper.commit(durable=self._is_durable)

    def _flush_group(self, group: _Group) -> None:
        if self._group is group:
            self.flush()

    def _fail(self, why: str) -> None:
        """Stop writing; those that wait for the group get the error."""
        self._error, group = f"the store cannot be written: {why}", self._group
        if group is not None:
            self._group, group.error = None, self._error
            group.done.set()


def open_store(path: Path | None) -> Store:
    """Open the file, and make it where it is missing; None: a store in memory that ends with the process.

    Raises:
        UserError: no such folder, not writable, or not a SQLite file.
    """
    if path is not None and not path.parent.is_dir():
        raise UserError(f"--db {str(path)!r}: no folder {str(path.parent)!r}; make it first")
    with ExitStack() as stack:
        try:
            if path is not None:
                _keep_private(path)
            store = sqlite3.connect(path or ":memory:", isolation_level=None, factory=Store)
            stack.callback(store.close)
            store.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
            store.execute("PRAGMA journal_mode=WAL")
            store.execute(f"PRAGMA wal_autocheckpoint={WAL_PAGES}")
            store.execute("PRAGMA synchronous=NORMAL")
            store.execute("PRAGMA temp_store=MEMORY")
            store.executescript(_SCHEMA)
            if path is not None:
                store.place, store.file = path, _identify(path)
            foreign = _find_foreign(store)
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
            raise UserError(f"--db {str(path)!r} cannot be used ({error}); choose another file") from None
        if foreign is not None:
            raise UserError(
                f"--db {str(path)!r}: {foreign!r} is not as this version's stores have it: somebody "
                "changed the file, or another version made it; choose another file"
            )
        stack.pop_all()  # only a store that is refused is closed here
    return store


def _identify(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def _keep_private(path: Path) -> None:
    """Make the file where it is missing; nobody but its owner may read it, and SQLite's files beside it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    try:
        if os.fstat(descriptor).st_mode & 0o077:
            os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)


_Part = tuple[str, str, str, str | None]  # type, name, table, SQL


def _list_parts(store: sqlite3.Connection) -> list[_Part]:
    return store.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY 1, 2").fetchall()


@cache
def _list_own_parts() -> list[_Part]:
    """The parts of a store: its tables, indexes and triggers, each with its SQL."""
    store = sqlite3.connect(":memory:")
    store.executescript(_SCHEMA)
    parts = _list_parts(store)
    store.close()
    return parts


def _find_foreign(store: Store) -> str | None:
    """Return the name of a part of the file that a store lacks, or that is not as a store has it.

    An index that leaves out rows hides them, a trigger drops what is written, a view stands for a table.
    """
    found, own = _list_parts(store), _list_own_parts()
    if found == own:
        return None
    return next((str(part[1]) for part in [*found, *own] if found.count(part) != own.count(part)), "a table")


@contextmanager
def transaction(store: Store, *, durable: bool = False) -> Iterator[None]:
    """Run all statements or none; a transaction that is open already is joined.

    On disk at the end, or in `Store.grouping` with the group. Survives kill -9 always; with `durable` the
    disk is waited for, so that it survives a power cut too. Nothing may be awaited inside.

    Raises:
        InfrastructureError: the disk is full or fails, another process holds the file for too long, or an
            earlier commit of this store failed.
    """
    if store.is_inside:
        yield
        return
    try:
        store.begin(durable=durable)
        try:
            yield
        except BaseException as error:
            store.undo(error)
            raise
        store.end()
    except (sqlite3.OperationalError, OSError) as error:
        raise InfrastructureError(f"the store cannot be written: {error}") from error


class HighWaterMark:
    """The mark in one file, under the key's seal; several processes may move it."""

    def __init__(self, path: Path, *, key: bytes) -> None:
        """Open the file, and make it where it is missing.

        Raises:
            UserError: it cannot be written.
        """
        self._path, self._key = path, key
        self._known: tuple[bytes, LogHead, LogHead] = (b"", LogHead(0, GENESIS), LogHead(0, GENESIS))
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
        except OSError as error:
            raise UserError(
                f"cannot write the store's mark {str(path)!r}: {error.strerror}; make it writable"
            ) from None

    def read(self) -> LogHead:
        """Return the mark; of an empty file the head of an empty log.

        Raises:
            UserError: the file does not hold a mark that this key wrote.
        """
        return self._read()[1]

    def lock(self) -> None:
        """Keep other processes out."""
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def unlock(self) -> None:
        """Let other processes in."""
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def advance(self, head: LogHead, *, durable: bool) -> None:
        """Move the mark to this entry, unless it is there or beyond. Needs the lock.

        Raises:
            OSError: the file cannot be written, or holds something else by now.
        """
        try:
            kept, latest = self._read()
        except UserError as error:
            raise OSError(str(error)) from None
        moved = max(kept, head) if durable else kept, max(latest, head)
        if moved != (kept, latest):
            told = [*moved[0], *moved[1], _name_boot()]
            line = " ".join(map(str, [*told, seal(self._key, "mark", told)]))
            text = f"{line:<{MARK_BYTES - 1}}\n".encode("ascii")
            os.pwrite(self._file, text, 0)
            self._known = (text, *moved)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _read(self) -> tuple[LogHead, LogHead]:
        """Return what waited for the disk, and the latest."""
        text = os.pread(self._file, MARK_BYTES + 1, 0)
        if text == self._known[0]:
            return self._known[1:]
        try:
            number, hashed, late_number, late_hash, boot, sealed = text.decode("ascii").split()
            kept, latest = LogHead(int(number), hashed), LogHead(int(late_number), late_hash)
            is_ours = is_sealed(self._key, "mark", [*kept, *latest, boot], sealed)
        except ValueError:
            is_ours = False
        if not is_ours:
            raise UserError(
                f"{self._path} holds no mark that was written with this key; use the store's own key, or "
                "delete the file to trust the store as it is"
            )
        if boot != _name_boot():
            latest = kept
        self._known = (text, kept, latest)
        return kept, latest


@cache
def _name_boot() -> str:
    """Return this start of the machine; "-" where none is told, and the latest head counts always."""
    try:
        return BOOT_FILE.read_text("ascii").strip() or "-"
    except OSError:
        return "-"

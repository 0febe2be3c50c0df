"""The SQLite file of a store: one append-only table; and its mark.

The mark, a file beside the store, tells how far the log had come: an old copy of the store, or a log that was
cut off, lacks an entry that the mark knows. Whoever can write both files can take both back, or delete the
mark: keep it on another disk, or under another user, against that.
"""

import fcntl
import os
import sqlite3
from contextlib import ExitStack, closing
from functools import cache
from pathlib import Path
from typing import NamedTuple

from roles.errors import UserError
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


EMPTY = LogHead(0, GENESIS)


class StoreFile(NamedTuple):
    """The path of an open store, and the device and number of the file that was opened there."""

    path: Path
    device: int
    inode: int

    def is_in_place(self) -> bool:
        """Return whether the path still leads to this file."""
        found = self.path.stat()
        return (found.st_dev, found.st_ino) == self[1:]


def open_store(path: Path | None) -> tuple[sqlite3.Connection, StoreFile | None]:
    """Open the file, and make it where it is missing; None: a store in memory that ends with the process.

    Raises:
        UserError: no such folder, not writable, or not a SQLite file.
    """
    if path is not None and not path.parent.is_dir():
        raise UserError(f"--db {str(path)!r}: no folder {str(path.parent)!r}; make it first")
    with ExitStack() as stack:
        try:
            file = None if path is None else _keep_private(path)
            store = sqlite3.connect(path or ":memory:", isolation_level=None)
            stack.callback(store.close)
            store.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
            store.execute("PRAGMA journal_mode=WAL")
            store.execute(f"PRAGMA wal_autocheckpoint={WAL_PAGES}")
            store.execute("PRAGMA synchronous=NORMAL")
            store.execute("PRAGMA temp_store=MEMORY")
            store.executescript(_SCHEMA)
            foreign = find_foreign(store)
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
            raise UserError(f"--db {str(path)!r} cannot be used ({error}); choose another file") from None
        if foreign is not None:
            raise UserError(
                f"--db {str(path)!r}: {foreign!r} is not as this version's stores have it: somebody "
                "changed the file, or another version made it; choose another file"
            )
        stack.pop_all()  # only a store that is refused is closed here
    return store, file


def _keep_private(path: Path) -> StoreFile:
    """Make the file where it is missing; nobody but its owner may read it, and SQLite's files beside it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    try:
        found = os.fstat(descriptor)
        if found.st_mode & 0o077:
            os.fchmod(descriptor, 0o600)
        return StoreFile(path, found.st_dev, found.st_ino)
    finally:
        os.close(descriptor)


_Part = tuple[str, str, str, str | None]  # type, name, table, SQL


def _list_parts(store: sqlite3.Connection) -> list[_Part]:
    return store.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY 1, 2").fetchall()


@cache
def _list_own_parts() -> list[_Part]:
    """The parts of a store: its table, index and triggers, each with its SQL."""
    with closing(sqlite3.connect(":memory:")) as store:
        store.executescript(_SCHEMA)
        return _list_parts(store)


def find_foreign(store: sqlite3.Connection) -> str | None:
    """Return the name of a part of the file that a store lacks, or that is not as a store has it.

    An index that leaves out rows hides them, a trigger drops what is written, a view stands for a table.
    """
    found, own = _list_parts(store), _list_own_parts()
    if found == own:
        return None
    return next((str(part[1]) for part in [*found, *own] if found.count(part) != own.count(part)), "a table")


class HighWaterMark:
    """The mark in one file, under the key's seal; several processes may move it."""

    def __init__(self, path: Path, *, key: bytes) -> None:
        """Open the file, and make it where it is missing; a UserError where it cannot be written."""
        self._path, self._key = path, key
        self._known: tuple[bytes, LogHead, LogHead] = (b"", EMPTY, EMPTY)
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
        except OSError as error:
            raise UserError(
                f"cannot write the store's mark {str(path)!r}: {error.strerror}; make it writable"
            ) from None

    def read(self) -> LogHead:
        """Return the mark; a UserError where the file holds none that this key wrote."""
        return self._read()[1]

    def lock(self) -> None:
        """Keep other processes out."""
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def unlock(self) -> None:
        """Let other processes in."""
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def advance(self, head: LogHead, *, durable: bool) -> None:
        """Move the mark to this entry, unless it is there or beyond. Needs the lock; raises OSError."""
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

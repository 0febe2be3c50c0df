"""The decision log: the append-only table of a store; every entry is chained to the one before and sealed.

What seats said, what was displayed, ruled, carried out and closed is an entry, and whatever decides is a
fold over a thread's entries. An entry holds the hash of the store's previous entry and that of its thread's
previous entry. A log that is open has verified every entry once, remembers how far it and each thread had
come, and refuses what is not those entries and more: changed, removed, hidden, cut off or rolled back.
`verify_chain` needs no key. Time in the log never runs backwards.
"""

import hashlib
import json
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from roles.errors import UserError
from simulator.governance.seals import Clock, NotApprovedError, canonical_json, is_sealed, refuse, seal
from simulator.governance.store import GENESIS, HighWaterMark, LogHead, Store, open_store, transaction

EntryKind = Literal[
    "opened",  # a case; with the seats that play it
    "said",  # a seat's answer to a message, with its turns
    "requested",  # a proposal is displayed; with the whole request
    "asked",  # a person is asked
    "seated",  # a person plays a seat
    "approved",
    "edited",
    "rejected",
    "refused",  # an answer does not count
    "committed",
    "executed",
    "observed",
    "replanned",
    "closed",
    "four_eyes",
    "registered",
    "removed",
]
MOST_OPEN, MOST_CLOSED = 4096, 64  # threads whose entries are kept in memory
_TYPES = (int, str, str, str, int, str, str, str, str)  # of a row
_Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of the log.

    Example: Entry(sequence=1, thread="t1", kind="closed", body={"status": "completed"}, at_s=0,
                   own=GENESIS, previous=GENESIS, hash="9f2c...")
    """

    sequence: int  # from 1, without gaps
    thread: str
    kind: str
    body: dict[str, Any]
    at_s: int  # UNIX seconds
    own: str  # hash of the thread's entry before
    previous: str  # hash of the entry before
    hash: str


class _End(NamedTuple):
    """The number of a thread's entries, and the hash of the last."""

    length: int
    hash: str


_NONE = _End(0, GENESIS)


class DecisionLog:
    """Appends to and reads from the log of one store; its entries are under the key's seal."""

    def __init__(
        self, connection: Store, clock: Clock, *, key: bytes, mark: HighWaterMark | None = None
    ) -> None:
        self.connection, self.mark = connection, mark
        self._clock, self._key = clock, key
        self._head, self._last_s = LogHead(0, GENESIS), 0  # up to here every entry was verified
        self._ends: dict[str, _End] = {}
        self._kept: dict[str, list[Entry]] = {}  # of threads in use
        self._dropped_next: deque[str] = deque()  # closed threads of these, the oldest first
        self._pending: list[tuple[LogHead, _Row, _End | None]] = []  # not committed, with what stood before
        self.requests: dict[str, str] = {}  # request -> thread, in the order of their display
        self.open_threads: dict[str, None] = {}  # that displayed a request and are not closed, in order
        self.closings: list[int] = []  # sequence numbers of the closes
        self.listeners: dict[str, Callable[[str, dict[str, Any]], None]] = {}  # thread -> who is told
        connection.keeper = self

    def now(self) -> float:
        """Return the clock's time, or that of the last entry where the clock was set back behind it."""
        self.catch_up()
        return max(self._clock(), self._last_s)

    def append(self, thread: str, kind: EntryKind, body: dict[str, Any]) -> None:
        """Add an entry; inside an open transaction it stands or falls with that.

        Raises:
            InfrastructureError: the store did not take it.
        """
        with transaction(self.connection):
            self.catch_up()
            end = self._ends.get(thread, _NONE)
            number, previous = self._head.sequence + 1, self._head.hash
            text, at_s = canonical_json(body), int(max(self._clock(), self._last_s))
            hashed = entry_hash(number, thread, kind, text, at_s, end.hash, previous)
            row = (number, thread, kind, text, at_s, end.hash, previous, hashed)
            self.connection.execute(
                "INSERT INTO decision_log VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*row, seal(self._key, "log", hashed)),
            )
            self._pending.append((self._head, row, self._ends.get(thread)))
            self._take(row)
        listener = self.listeners.get(thread)
        if listener is not None:
            listener(kind, body)

    def entries(self, thread: str | None = None) -> Iterator[Entry]:
        """Return all entries in order as the file has them, or those of one thread, unchecked."""
        where, given = ("WHERE thread = ?", (thread,)) if thread is not None else ("", ())
        yield from map(_read_entry, self._select(where, given))

    def read(self, thread: str) -> list[Entry]:
        """Return the thread's entries, verified.

        Raises:
            NotApprovedError: "tampered": one was changed, removed or hidden.
        """
        self.catch_up()
        if thread not in self._kept:
            found = [_read_entry(self._verify(row)) for row in self._select("WHERE thread = ?", (thread,))]
            if _End(len(found), found[-1].hash if found else GENESIS) != self._ends.get(thread, _NONE):
                refuse("tampered", f"entries of {thread!r} were taken out of the decision log")
            self._kept[thread] = found
            if found and found[-1].kind == "closed":
                self._drop_after(thread)
        return self._kept[thread]

    def find(self, thread: str, *kinds: EntryKind) -> list[Entry]:
        """Return the thread's entries of these kinds, in order. See `read`."""
        return [entry for entry in self.read(thread) if entry.kind in kinds]

    def verify(self, thread: str) -> None:
        """Read the thread's entries from the file again.

        Raises:
            NotApprovedError: "tampered": they are not what they were.
        """
        self._kept.pop(thread, None)
        self.read(thread)

    def read_closes(self, first: int, end: int) -> list[Entry]:
        """Return the closes of the store from number `first` to before `end`."""
        numbers = self.closings[first:end]
        if not numbers:
            return []
        where = "WHERE sequence BETWEEN ? AND ? AND kind = 'closed'"
        found = [_read_entry(self._verify(row)) for row in self._select(where, (numbers[0], numbers[-1]))]
        if [entry.sequence for entry in found] != numbers:
            refuse("tampered", "a closed case was taken out of the decision log")
        return found

    def head(self) -> str:
        """Hash of the last entry: keep it elsewhere to notice a log that was cut off."""
        self.catch_up()
        return self._head.hash

    def begin(self) -> None:
        """See Keeper.begin: the file holds all entries that were seen, and those that the mark tells of.

        Raises:
            OSError: it does not.
        """
        try:
            if self.mark is not None:
                self.mark.lock()
                marked = self.mark.read()
            self.catch_up(is_locked=True)
            if self.mark is not None and not self.reaches(marked):
                refuse("tampered", f"it lacks entry {marked.sequence} of its decision log")
        except (NotApprovedError, UserError) as error:
            raise OSError(str(error)) from None

    def commit(self, *, durable: bool) -> None:
        """See Keeper.commit: moves the mark."""
        self._pending.clear()
        if self.mark is not None:
            try:
                self.mark.advance(self._head, durable=durable)
            finally:
                self.mark.unlock()

    def undo(self, *, is_over: bool) -> None:
        """See Keeper.undo: forgets entries that were taken back."""
        (last,) = self.connection.execute("SELECT coalesce(max(sequence), 0) FROM decision_log").fetchone()
        while self._pending and self._head.sequence > last:
            self._head, (number, thread, kind, text, *_), end = self._pending.pop()
            self._kept.pop(thread, None)
            self._ends.pop(thread) if end is None else self._ends.update({thread: end})
            if kind == "requested":
                self.requests.pop(json.loads(text)["interrupt_id"], None)
            elif kind == "closed":
                self.closings.remove(number)
                self.open_threads.setdefault(thread)
        if is_over and self.mark is not None:
            self.mark.unlock()

    def settle(self) -> None:
        """Wait until all that was committed is on disk, and move the mark there."""
        if self.mark is None or self.connection.in_transaction:
            return
        head = self._head
        self.connection.execute("PRAGMA wal_checkpoint(PASSIVE)")  # waits for the disk first
        self.mark.lock()
        try:
            self.mark.advance(head, durable=True)
        finally:
            self.mark.unlock()

    def reaches(self, head: LogHead) -> bool:
        """Return whether this entry is in the log."""
        if head.sequence in (0, self._head.sequence):
            return head in (LogHead(0, GENESIS), self._head)
        return [row[-2] for row in self._select("WHERE sequence = ?", (head.sequence,))] == [head.hash]

    def catch_up(self, *, is_locked: bool = False) -> None:
        """Verify what was added since, once: nobody else adds while a transaction of ours is open.

        Raises:
            NotApprovedError: "tampered": an entry is not as it was written, or what was known is gone.
        """
        if self.connection.in_transaction and not is_locked:
            return
        number = self._head.sequence
        rows = self._select("WHERE sequence >= ?", (number,))
        if number and next(rows, ("", ""))[-2] != self._head.hash:
            refuse("tampered", f"entry {number} is not in the decision log any more: an old copy, or cut off")
        for row in rows:
            self._verify(row)
            if (row[0], row[6]) != (self._head.sequence + 1, self._head.hash):
                refuse("tampered", f"entry {self._head.sequence + 1} of the decision log is not there")
            self._take(row)

    def _take(self, row: _Row) -> None:
        """Remember a verified row as the last one."""
        sequence, thread, kind, text, at_s, own, _, hashed = row[:8]
        end = self._ends.get(thread, _NONE)
        if own != end.hash:
            refuse("tampered", f"entry {sequence} does not follow the one before of its thread")
        self._head, self._last_s = LogHead(sequence, hashed), max(self._last_s, at_s)
        self._ends[thread] = _End(end.length + 1, hashed)
        if thread in self._kept or (not end.length and self._pending):
            self._kept.setdefault(thread, []).append(_read_entry(row))
        if kind == "closed":
            self.open_threads.pop(thread, None)
            self.closings.append(sequence)
            self._drop_after(thread)
        elif kind == "requested":
            self.open_threads.setdefault(thread)
            self.requests[json.loads(text)["interrupt_id"]] = thread

    def _drop_after(self, thread: str) -> None:
        """Keep the entries of a closed thread in memory until others were closed, or there are too many."""
        self._dropped_next.append(thread)
        while len(self._dropped_next) > MOST_CLOSED:
            self._kept.pop(self._dropped_next.popleft(), None)
        while len(self._kept) > MOST_OPEN:
            del self._kept[next(iter(self._kept))]

    def _select(self, where: str, given: tuple[Any, ...]) -> Iterator[_Row]:
        for row in self.connection.execute(f"SELECT * FROM decision_log {where} ORDER BY sequence", given):
            if tuple(map(type, row)) != _TYPES:
                refuse("tampered", "a row of the decision log is of another type")
            yield row

    def _verify(self, row: _Row) -> _Row:
        *fields, hashed, sealed = row
        if entry_hash(*fields) != hashed or not is_sealed(self._key, "log", hashed, sealed):
            refuse("tampered", f"entry {row[0]} of the decision log is not as it was written with this key")
        return row


def _read_entry(row: _Row) -> Entry:
    """Read a row; a body that was damaged on disk becomes one that no hash fits."""
    sequence, thread, kind, text, at_s, own, previous, hashed = row[:8]
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        body = None
    return Entry(
        sequence=sequence,
        thread=thread,
        kind=kind,
        body=body if isinstance(body, dict) else {"damaged": text},
        at_s=at_s,
        own=own,
        previous=previous,
        hash=hashed,
    )


def entry_hash(sequence: int, thread: str, kind: str, body: str, at_s: int, own: str, previous: str) -> str:
    """Return the SHA-256 over the entry, its canonical body, and the hashes of the entries before."""
    text = canonical_json([sequence, thread, kind, body, at_s, own, previous])
    return hashlib.sha256(text.encode()).hexdigest()


def hash_entry(entry: Entry) -> str:
    """Return the hash that the entry should have."""
    fields = (entry.sequence, entry.thread, entry.kind, canonical_json(entry.body))
    return entry_hash(*fields, entry.at_s, entry.own, entry.previous)


def verify_chain(entries: Iterable[Entry], *, head: str | None = None) -> int | None:
    """Return the sequence number of the first bad entry; None for a sound chain.

    With `head`, a sound chain that ends elsewhere is bad at the number after its last entry.
    """
    sequence, previous = 0, GENESIS
    for entry in entries:
        sequence += 1
        if (entry.sequence, entry.previous, entry.hash) != (sequence, previous, hash_entry(entry)):
            return sequence
        previous = entry.hash
    return None if head is None or head == previous else sequence + 1


@contextmanager
def open_log(path: Path | None, clock: Clock, *, key: bytes) -> Iterator[DecisionLog]:
    """Open the log of a store with its mark, PATH.mark, which may be a link; None: in memory.

    Raises:
        UserError: the file cannot be used, was changed or damaged, lacks what the mark knows, or the mark is
            another store's or cannot be written.
    """
    path = path and path.resolve()  # a link to the store has no mark of its own
    with naming_damage(path), closing(open_store(path)) as store:
        place = path and path.with_name(f"{path.name}.mark")
        mark = HighWaterMark(place, key=key) if place else None
        log = DecisionLog(store, clock, key=key, mark=mark)
        try:
            known = mark.read() if mark else LogHead(0, GENESIS)
            try:
                log.catch_up()
            except NotApprovedError as error:
                raise UserError(f"{path}: {error}; use the store's own key, or another store") from None
            if not log.reaches(known):
                raise UserError(
                    f"{path} lacks entry {known.sequence} of its decision log as {place} knows it: this is an"
                    " old copy, or its log was changed; put the newer store back, or delete that file to"
                    " trust this one"
                )
            yield log
            with suppress(sqlite3.Error, OSError):  # the mark stays where it is
                log.settle()
        finally:
            if mark is not None:
                mark.close()


_OURS = (sqlite3.OperationalError, sqlite3.ProgrammingError, sqlite3.IntegrityError)


@contextmanager
def naming_damage(path: Path | None) -> Iterator[None]:
    """Turn what is said of a damaged or changed file into a message that names it.

    Raises:
        UserError: the file is damaged.
    """
    try:
        yield
    except NotApprovedError as error:
        raise UserError(f"the store {str(path)!r} was changed: {error}; put a sound copy back") from error
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        is_damage = not isinstance(error, _OURS) or "decode" in str(error)  # a text that is no UTF-8
        if not is_damage:
            raise
        raise UserError(f"the store {str(path)!r} is damaged ({error}); put a sound copy back") from error

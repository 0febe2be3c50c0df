"""The decision log: append-only, every entry chained to the one before and sealed with the key.

An entry holds the hash of the store's previous entry and the hash of its thread's previous entry. A log that
is open has verified every entry once, remembers how far it and each thread had come, and refuses what is not
those entries and more: changed, removed, hidden, cut off or rolled back. `verify_chain` needs no key.
Time in the log never runs backwards.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from roles.errors import UserError
from simulator.governance.gate.approvals import Clock, NotApprovedError, refuse
from simulator.governance.gate.seals import is_sealed, seal
from simulator.governance.store.database import (
    GENESIS,
    LogHead,
    Store,
    canonical_json,
    read_json,
    transaction,
)
from simulator.governance.store.high_water_mark import HighWaterMark

EntryKind = Literal[
    "opened",
    "requested",
    "asked",
    "seated",
    "answered",
    "approved",
    "edited",
    "rejected",
    "refused",
    "committed",
    "executed",
    "observed",
    "replanned",
    "closed",
    "four_eyes",
    "registered",
    "removed",
]


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


_NOTHING = ("", "")
_TYPES = (int, str, str, str, int, str, str, str, str)  # of a row
MOST_OPEN, MOST_CLOSED = 4096, 64  # threads whose entries are kept in memory


class _End(NamedTuple):
    """The number of a thread's entries, and the hash of the last."""

    length: int
    hash: str


class DecisionLog:
    """Appends to and reads from the log table of one store; its entries are under the key's seal."""

    def __init__(
        self, connection: Store, clock: Clock, *, key: bytes, mark: HighWaterMark | None = None
    ) -> None:
        self._connection, self._clock, self._key = connection, clock, key
        self.mark = mark
        self._head, self._last_s = LogHead(0, GENESIS), 0  # up to here every entry was verified
        self._ends: dict[str, _End] = {}
        self._kept: dict[str, list[Entry]] = {}  # of threads in use
        self._closed: deque[str] = deque()  # of these, what is dropped first
        self._pending: list[tuple[LogHead, str, _End | None]] = []  # not committed: what stood before each
        self.open_threads: dict[str, None] = {}  # that displayed a request and are not closed, in order
        self.listeners: dict[str, Callable[[str, dict[str, Any]], None]] = {}  # thread -> who is told
        connection.keeper = self

    def now(self) -> float:
        """Return the clock's time, or that of the last entry where the clock was set back behind it."""
        self._catch_up()
        return max(self._clock(), self._last_s)

    def append(self, thread: str, kind: EntryKind, body: dict[str, Any]) -> None:
        """Add an entry; inside an open transaction it stands or falls with that.

        Raises:
            NotApprovedError: "tampered": the store did not take it.
        """
        with transaction(self._connection):
            self._catch_up()
            end = self._ends.get(thread, _End(0, GENESIS))
            number, previous = self._head.sequence + 1, self._head.hash
            text, at_s = canonical_json(body), int(max(self._clock(), self._last_s))
            hashed = entry_hash(number, thread, kind, text, at_s, end.hash, previous)
            row = (number, thread, kind, text, at_s, end.hash, previous, hashed)
            self._connection.execute(
                "INSERT INTO decision_log VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*row, seal(self._key, "log", hashed)),
            )
            self._pending.append((self._head, thread, self._ends.get(thread)))
            self._take(_read_entry(row))
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
        self._catch_up()
        if thread not in self._kept:
            own = self._ends.get(thread, _End(0, GENESIS))
            found = [self._verify(row) for row in self._select("WHERE thread = ?", (thread,))]
            if _End(len(found), found[-1].hash if found else GENESIS) != own:
                refuse("tampered", f"entries of {thread!r} were taken out of the decision log")
            self._keep(thread, found)
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

    def head(self) -> str:
        """Hash of the last entry: keep it elsewhere to notice a log that was cut off."""
        self._catch_up()
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
            self._catch_up(is_locked=True)
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
        (last,) = self._connection.execute("SELECT coalesce(max(sequence), 0) FROM decision_log").fetchone()
        while self._pending and self._head.sequence > last:
            self._head, thread, end = self._pending.pop()
            self._kept.pop(thread, None)
            self._ends.pop(thread) if end is None else self._ends.update({thread: end})
        if is_over and self.mark is not None:
            self.mark.unlock()

    def settle(self) -> None:
        """Wait until all that was committed is on disk, and move the mark there."""
        if self.mark is None or self._connection.in_transaction:
            return
        head = self._head
        self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")  # waits for the disk first
        self.mark.lock()
        try:
            self.mark.advance(head, durable=True)
        finally:
            self.mark.unlock()

    def reaches(self, head: LogHead) -> bool:
        """Return whether this entry is in the log."""
        if head.sequence in (0, self._head.sequence):
            return head in (LogHead(0, GENESIS), self._head)
        found = self._select("WHERE sequence = ?", (head.sequence,))
        return [row[-2] for row in found] == [head.hash]

    def _catch_up(self, *, is_locked: bool = False) -> None:
        """Verify what was added since, once: nobody else adds while a transaction of ours is open.

        Raises:
            NotApprovedError: "tampered": an entry is not as it was written, or what was known is gone.
        """
        if self._connection.in_transaction and not is_locked:
            return
        number = self._head.sequence
        rows = iter(self._select("WHERE sequence >= ?", (number,)))
        if number and next(rows, _NOTHING)[-2] != self._head.hash:
            refuse("tampered", f"entry {number} is not in the decision log any more: an old copy, or cut off")
        for row in rows:
            entry = self._verify(row)
            if (entry.sequence, entry.previous) != (self._head.sequence + 1, self._head.hash):
                refuse("tampered", f"entry {self._head.sequence + 1} of the decision log is not there")
            self._take(entry)

    def _take(self, entry: Entry) -> None:
        """Remember a verified entry as the last one."""
        end = self._ends.get(entry.thread, _End(0, GENESIS))
        if entry.own != end.hash:
            refuse("tampered", f"entry {entry.sequence} does not follow the one before of its thread")
        self._head, self._last_s = LogHead(entry.sequence, entry.hash), max(self._last_s, entry.at_s)
        self._ends[entry.thread] = _End(end.length + 1, entry.hash)
        if entry.kind == "closed":
            self.open_threads.pop(entry.thread, None)
        elif entry.kind == "requested":
            self.open_threads.setdefault(entry.thread)
        if entry.thread in self._kept or not end.length:
            self._keep(entry.thread, [*self._kept.get(entry.thread, ()), entry])

    def _keep(self, thread: str, entries: list[Entry]) -> None:
        self._kept[thread] = entries
        if entries and entries[-1].kind == "closed":
            self._closed.append(thread)
        while len(self._closed) > MOST_CLOSED:
            self._kept.pop(self._closed.popleft(), None)
        if len(self._kept) > MOST_OPEN:
            del self._kept[next(iter(self._kept))]

    def _select(self, where: str, given: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        for row in self._connection.execute(f"SELECT * FROM decision_log {where} ORDER BY sequence", given):
            if tuple(map(type, row)) != _TYPES:
                refuse("tampered", "a row of the decision log is of another type")
            yield row

    def _verify(self, row: tuple[Any, ...]) -> Entry:
        *fields, hashed, sealed = row
        if entry_hash(*fields) != hashed or not is_sealed(self._key, "log", hashed, sealed):
            refuse("tampered", f"entry {row[0]} of the decision log is not as it was written with this key")
        return _read_entry(row)


def _read_entry(row: tuple[Any, ...]) -> Entry:
    """Read a row; a body that was damaged on disk becomes one that no hash fits."""
    sequence, thread, kind, text, at_s, own, previous, hashed = row[:8]
    body = read_json(text)
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

"""The decision log: the append-only table of a store; every entry is chained to the one before and sealed.

What seats said, what was displayed, ruled, carried out and closed is an entry, and whatever decides is a
fold over a thread's entries. An entry holds the hash of the store's previous entry and that of its thread's
previous entry. A log that is open has verified every entry once, remembers how far it and each thread had
come, and refuses what is not those entries and more: changed, removed, hidden, cut off or rolled back.
Time in the log never runs backwards.

While many episodes are played, the transactions of one turn of the event loop are committed together.
"""

import asyncio
import hashlib
import json
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from roles.errors import InfrastructureError, UserError
from simulator.governance.seals import Clock, NotApprovedError, canonical_json, is_sealed, refuse, seal
from simulator.governance.store import (
    EMPTY,
    GENESIS,
    HighWaterMark,
    LogHead,
    StoreFile,
    find_foreign,
    open_store,
)

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


class DecisionLog:
    """Appends to and reads from the log of one store; its entries are under the key's seal.

    Inside `grouping` a transaction that has ended is seen by this process at once, but is in the file only
    when `committed` returns. Entries keep their order: a later one is never there without an earlier one.
    After a commit of a group that failed, or over a file that is not the one it was, nothing is written any
    more until the file is opened again.
    """

    def __init__(
        self,
        store: sqlite3.Connection,
        clock: Clock,
        *,
        key: bytes,
        file: StoreFile | None = None,
        mark: HighWaterMark | None = None,
    ) -> None:
        """`file`: of a store that is not in memory."""
        self.store, self.mark, self._file = store, mark, file
        self._clock, self._key = clock, key
        self.listeners: dict[str, Callable[[str, dict[str, Any]], None]] = {}  # thread -> who is told
        self._num_groupings = 0
        # of the open transaction; its result tells why the commit failed, or is ""
        self._group: asyncio.Future[str] | None = None
        self._error = ""  # why nothing is written any more
        self._is_inside = self._is_durable = False
        self._new: Entry | None = None  # of the transaction under way
        self._least = EMPTY  # the file must hold this entry
        self._forget()

    def _forget(self) -> None:
        """Know nothing of the log: it is read and verified from its beginning when it is next asked."""
        self._head, self._last_s = EMPTY, 0  # up to here every entry was verified
        self._ends: dict[str, str] = {}  # thread -> hash of its last entry
        self._kept: dict[str, list[Entry]] = {}  # of threads in use
        self._dropped_next: deque[str] = deque()  # closed threads of these, the oldest first
        self.requests: dict[str, str] = {}  # request -> thread, in the order of their display
        self.open_threads: dict[str, None] = {}  # that displayed a request and are not closed, in order
        self.closings: list[int] = []  # sequence numbers of the closes

    def now(self) -> float:
        """Return the clock's time, or that of the last entry where the clock was set back behind it."""
        self.catch_up()
        return max(self._clock(), self._last_s)

    def append(self, thread: str, kind: EntryKind, body: dict[str, Any], *, durable: bool = False) -> Entry:
        """Add an entry; inside an open transaction, to which it may be the only one, it falls with that."""
        with self.transaction(durable=durable):
            assert self._new is None, "a transaction adds one entry"
            self.catch_up()
            number, own = self._head.sequence + 1, self._ends.get(thread, GENESIS)
            text, at_s = canonical_json(body), int(max(self._clock(), self._last_s))
            hashed = entry_hash(number, thread, kind, text, at_s, own, self._head.hash)
            self._new = _read_entry((number, thread, kind, text, at_s, own, self._head.hash, hashed))
            return self._new

    @contextmanager
    def transaction(self, *, durable: bool = False) -> Iterator[None]:
        """Look at the log and add an entry while nobody else can; an open transaction is joined.

        In the file at the end, or in `grouping` with the group. Survives kill -9 always; with `durable` the
        disk is waited for, so that it survives a power cut too. Nothing may be awaited inside.

        Raises:
            InfrastructureError: the disk is full or fails, another process holds the file for too long, the
                file is not the one it was, or an earlier commit failed.
        """
        if self._is_inside:
            yield
            return
        if self._error:
            raise InfrastructureError(self._error)
        try:
            self._open(durable=durable)
            self._is_inside = True
            try:
                yield
                added = self._insert()
            except BaseException as error:
                if self._group is None:
                    self._roll_back()
                elif not self.store.in_transaction:  # a full disk has taken the rest of the group back, too
                    self._fail(error)
                raise
            finally:
                self._is_inside, self._new = False, None
            if self._group is None:
                self._commit()
        except (sqlite3.OperationalError, OSError) as error:
            raise InfrastructureError(f"the store cannot be written: {error}") from error
        if added is not None and added.thread in self.listeners:
            self.listeners[added.thread](added.kind, added.body)

    @contextmanager
    def grouping(self) -> Iterator[None]:
        """Commit transactions together meanwhile; the event loop must be running. May be nested."""
        self._num_groupings += 1
        try:
            yield
        finally:
            self._num_groupings -= 1
            self._flush()

    async def committed(self) -> None:
        """Wait until all transactions that have ended are in the file.

        Raises:
            InfrastructureError: a commit failed, the disk being full for example.
        """
        error = self._error if self._group is None else await asyncio.shield(self._group)
        if error:
            raise InfrastructureError(error)

    def commit_now(self) -> None:
        """Commit what has ended, without waiting for the others of the group; raises as `committed` does."""
        self._flush()
        if self._error:
            raise InfrastructureError(self._error)

    def _open(self, *, durable: bool) -> None:
        """Begin a transaction, or go on with that of the group."""
        if self._group is not None and durable and not self._is_durable:
            self.commit_now()  # how long a commit waits for the disk cannot be changed inside it
        if self._group is not None:
            return
        if durable != self._is_durable:
            self.store.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._is_durable = durable
        self.store.execute("BEGIN IMMEDIATE")
        try:
            self._require_file()
        except BaseException as error:
            self._roll_back()
            if isinstance(error, (NotApprovedError, UserError, OSError)):
                self._fail(error)
                raise InfrastructureError(self._error) from None
            raise
        if self._num_groupings:
            loop = asyncio.get_running_loop()
            self._group = loop.create_future()
            loop.call_soon(self._flush, self._group)

    def _require_file(self) -> None:
        """Refuse a file that is not the store that it was, and all that was seen and the mark tells of."""
        if self._file is not None and not self._file.is_in_place():
            raise OSError("another file stands in its place")
        foreign = find_foreign(self.store)
        if foreign is not None:
            raise OSError(f"{foreign!r} in it is not as a store has it")
        if self.mark is not None:
            self.mark.lock()
        self.catch_up(self.mark.read() if self.mark is not None else self._least)

    def _insert(self) -> "Entry | None":
        """Write the new entry, if there is any, and remember it."""
        new = self._new
        if new is not None:
            fields = (new.sequence, new.thread, new.kind, canonical_json(new.body), new.at_s)
            row = (*fields, new.own, new.previous, new.hash)
            self.store.execute(
                "INSERT INTO decision_log VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*row, seal(self._key, "log", new.hash)),
            )
            self._take(new, is_ours=True)
        return new

    def _commit(self) -> None:
        """Commit, and move the mark; raises sqlite3.Error and OSError, and then nothing of it is believed."""
        try:
            self.store.execute("COMMIT")
            self._least = self._head
            if self.mark is not None:
                self.mark.advance(self._head, durable=self._is_durable)
                self.mark.unlock()
        except (sqlite3.Error, OSError):
            self._roll_back()
            self._forget()
            raise

    def _roll_back(self) -> None:
        with suppress(sqlite3.Error):
            if self.store.in_transaction:
                self.store.execute("ROLLBACK")
        if self.mark is not None:
            self.mark.unlock()

    def _flush(self, group: "asyncio.Future[str] | None" = None) -> None:
        """Commit the group, or only this one; nothing is raised, `committed` tells."""
        if self._group is None or group not in (None, self._group):
            return
        try:
            self._commit()
        except (sqlite3.Error, OSError) as error:
            self._fail(error)
        else:
            self._end_group("")

    def _fail(self, error: BaseException) -> None:
        """Stop writing, and believe nothing of the group."""
        self._error = f"the store cannot be written: {error}"
        if self._group is not None:
            self._roll_back()
            self._forget()
            self._end_group(self._error)

    def _end_group(self, error: str) -> None:
        group, self._group = self._group, None
        if group is not None:
            group.set_result(error)

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
            found = [self._verify(row) for row in self._select("WHERE thread = ?", (thread,))]
            hashes = [GENESIS, *(entry.hash for entry in found)]
            is_chained = [entry.own for entry in found] == hashes[:-1]
            if not is_chained or hashes[-1] != self._ends.get(thread, GENESIS):
                refuse("tampered", f"entries of {thread!r} were taken out of the decision log")
            self._kept[thread] = found
            if found and found[-1].kind == "closed":
                self._drop_after(thread)
        return self._kept[thread]

    def find(self, thread: str, *kinds: EntryKind) -> list[Entry]:
        """Return the thread's entries of these kinds, in order. See `read`."""
        return [entry for entry in self.read(thread) if entry.kind in kinds]

    def verify(self, thread: str) -> None:
        """Read the thread's entries from the file again. See `read`."""
        self._kept.pop(thread, None)
        self.read(thread)

    def read_closes(self, first: int, end: int) -> list[Entry]:
        """Return the closes of the store from number `first` to before `end`."""
        numbers = self.closings[first:end]
        if not numbers:
            return []
        where = "WHERE sequence BETWEEN ? AND ? AND kind = 'closed'"
        found = [self._verify(row) for row in self._select(where, (numbers[0], numbers[-1]))]
        if [entry.sequence for entry in found] != numbers:
            refuse("tampered", "a closed case was taken out of the decision log")
        return found

    def head(self) -> str:
        """Hash of the last entry: keep it elsewhere to notice a log that was cut off."""
        self.catch_up()
        return self._head.hash

    def settle(self) -> None:
        """Wait until all that was committed is on disk, and move the mark there."""
        if self.mark is None or self.store.in_transaction:
            return
        head = self._head
        self.store.execute("PRAGMA wal_checkpoint(PASSIVE)")  # waits for the disk first
        self.mark.lock()
        try:
            self.mark.advance(head, durable=True)
        finally:
            self.mark.unlock()

    def catch_up(self, marked: LogHead | None = None) -> None:
        """Verify what was added since, once: nobody else adds while a transaction of ours is open.

        `marked`: that transaction begins, and the log must hold this entry.

        Raises:
            NotApprovedError: "tampered": an entry is not as it was written, or what was known is gone.
        """
        if self.store.in_transaction and marked is None:
            return
        number = self._head.sequence
        self._least = max(self._least, marked or self._least)
        rows = self._select("WHERE sequence >= ?", (number,))
        if number and next(rows, ("", ""))[-2] != self._head.hash:
            refuse("tampered", f"entry {number} is not in the decision log any more: an old copy, or cut off")
        for row in rows:
            entry = self._verify(row)
            if (entry.sequence, entry.previous) != (self._head.sequence + 1, self._head.hash):
                refuse("tampered", f"entry {self._head.sequence + 1} of the decision log is not there")
            self._take(entry)
        if (marked is not None or not number) and not self._reaches(self._least):
            refuse("tampered", f"it lacks entry {self._least.sequence} of its decision log")

    def _reaches(self, head: LogHead) -> bool:
        """Return whether this entry is in the log."""
        if head.sequence in (0, self._head.sequence):
            return head in (EMPTY, self._head)
        return [row[-2] for row in self._select("WHERE sequence = ?", (head.sequence,))] == [head.hash]

    def _take(self, entry: Entry, *, is_ours: bool = False) -> None:
        """Remember a verified entry as the last one; those of a thread that is opened here are kept."""
        sequence, thread = entry.sequence, entry.thread
        end = self._ends.get(thread, GENESIS)
        if entry.own != end:
            refuse("tampered", f"entry {sequence} does not follow the one before of its thread")
        self._head, self._last_s = LogHead(sequence, entry.hash), max(self._last_s, entry.at_s)
        self._ends[thread] = entry.hash
        if thread in self._kept or (is_ours and end == GENESIS):
            self._kept.setdefault(thread, []).append(entry)
        if entry.kind == "closed":
            self.open_threads.pop(thread, None)
            self.closings.append(sequence)
            self._drop_after(thread)
        elif entry.kind == "requested":
            self.open_threads.setdefault(thread)
            self.requests[entry.body["interrupt_id"]] = thread

    def _drop_after(self, thread: str) -> None:
        """Keep the entries of a closed thread in memory until others were closed, or there are too many."""
        self._dropped_next.append(thread)
        while len(self._dropped_next) > MOST_CLOSED:
            self._kept.pop(self._dropped_next.popleft(), None)
        while len(self._kept) > MOST_OPEN:
            del self._kept[next(iter(self._kept))]

    def _select(self, where: str, given: tuple[Any, ...]) -> Iterator[_Row]:
        for row in self.store.execute(f"SELECT * FROM decision_log {where} ORDER BY sequence", given):
            if tuple(map(type, row)) != _TYPES:
                refuse("tampered", "a row of the decision log is of another type")
            yield row

    def _verify(self, row: _Row) -> Entry:
        *fields, hashed, sealed = row
        if entry_hash(*fields) != hashed or not is_sealed(self._key, "log", hashed, sealed):
            refuse("tampered", f"entry {row[0]} of the decision log is not as it was written with this key")
        return _read_entry(row)


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


def verify_chain(entries: Iterable[Entry], *, head: str | None = None) -> int | None:
    """Return the sequence number of the first bad entry, without the key; None for a sound chain.

    With `head`, a sound chain that ends elsewhere is bad at the number after its last entry.
    """
    sequence, previous = 0, GENESIS
    for sequence, entry in enumerate(entries, start=1):
        fields = (entry.sequence, entry.thread, entry.kind, canonical_json(entry.body))
        hashed = entry_hash(*fields, entry.at_s, entry.own, entry.previous)
        if (entry.sequence, entry.previous, entry.hash) != (sequence, previous, hashed):
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
    store, file = open_store(path)
    with naming_damage(path), closing(store):
        place = path and path.with_name(f"{path.name}.mark")
        mark = HighWaterMark(place, key=key) if place else None
        log = DecisionLog(store, clock, key=key, file=file, mark=mark)
        try:
            known = mark.read() if mark else EMPTY
            try:
                log.catch_up()
            except NotApprovedError as error:
                raise UserError(f"{path}: {error}; use the store's own key, or another store") from None
            try:
                log.catch_up(known)
            except NotApprovedError:
                raise UserError(
                    f"{path} lacks entry {known.sequence} of its decision log as {place} knows it: this is an"
                    " old copy, or its log was changed; put the newer store back, or delete that file to"
                    " trust this one"
                ) from None
            yield log
            with suppress(sqlite3.Error, OSError):  # the mark stays where it is
                log.settle()
        finally:
            if mark is not None:
                mark.close()


_OURS = (sqlite3.OperationalError, sqlite3.ProgrammingError, sqlite3.IntegrityError)


@contextmanager
def naming_damage(path: Path | None) -> Iterator[None]:
    """Turn what is said of a damaged or changed file into a UserError that names it."""
    try:
        yield
    except NotApprovedError as error:
        raise UserError(f"the store {str(path)!r} was changed: {error}; put a sound copy back") from error
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        is_damage = not isinstance(error, _OURS) or "decode" in str(error)  # a text that is no UTF-8
        if not is_damage:
            raise
        raise UserError(f"the store {str(path)!r} is damaged ({error}); put a sound copy back") from error

"""The decision log: append-only, every entry chained to the one before by its hash and sealed with the key.

`DecisionLog.find_unsound` finds an entry that was changed, removed or inserted without the key.
`verify_chain` needs no key and finds the same, unless the log was written anew from some entry on. A log cut
off at its end is found only against a head that was kept elsewhere, or by a process that read beyond it.
Time in the log never runs backwards.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

from simulator.governance.gate.approvals import Clock, refuse
from simulator.governance.gate.seals import is_sealed, seal
from simulator.governance.store.database import GENESIS, LogHead, Store, canonical_json, transaction

EntryKind = Literal[
    "requested",
    "asked",
    "seated",
    "refused",
    "edited",
    "rejected",
    "committed",
    "executed",
    "observed",
    "replanned",
    "closed",
    "four_eyes",
]
KINDS: tuple[str, ...] = get_args(EntryKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of the log.

    Example: Entry(sequence=1, thread="t1", kind="closed", body={"status": "completed"}, at_s=0,
                   previous=GENESIS, hash=entry_hash(1, "t1", "closed", "{...}", 0, GENESIS))
    """

    sequence: int  # from 1, without gaps
    thread: str
    kind: str
    body: dict[str, Any]
    at_s: int  # UNIX seconds
    previous: str  # hash of the entry before
    hash: str


class DecisionLog:
    """Appends to and reads from the log table of one store; its entries are under the key's seal."""

    def __init__(self, connection: Store, clock: Clock, *, key: bytes) -> None:
        self._connection, self._clock, self._key = connection, clock, key
        self._checked = (0, GENESIS)  # up to here `find_unsound` found nothing
        self.listeners: dict[str, Callable[[str, dict[str, Any]], None]] = {}  # thread -> who is told

    def now(self) -> float:
        """Return the clock's time, or that of the last entry where the clock was set back behind it."""
        row = self._connection.execute("SELECT max(at_s) FROM decision_log").fetchone()
        return max(self._clock(), row[0] or 0)

    def append(self, thread: str, kind: EntryKind, body: dict[str, Any]) -> None:
        """Add an entry; inside an open transaction it stands or falls with that.

        Raises:
            NotApprovedError: "tampered": the store did not take it.
        """
        with transaction(self._connection):
            last = self._connection.execute(
                "SELECT sequence, hash, at_s FROM decision_log ORDER BY sequence DESC LIMIT 1"
            ).fetchone()
            sequence, previous, last_s = (last[0] + 1, last[1], last[2]) if last else (1, GENESIS, 0)
            text, at_s = canonical_json(body), int(max(self._clock(), last_s))
            hashed = entry_hash(sequence, thread, kind, text, at_s, previous)
            added = self._connection.execute(
                "INSERT INTO decision_log VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (sequence, thread, kind, text, at_s, previous, hashed, seal(self._key, "log", hashed)),
            )
            if added.rowcount != 1:  # a trigger that somebody put into the file
                refuse("tampered", f"the store drops entry {sequence} of its decision log")
        listener = self.listeners.get(thread)
        if listener is not None:
            listener(kind, body)

    def entries(self, thread: str | None = None) -> Iterator[Entry]:
        """Return all entries in order, or those of one thread."""
        where, given = ("WHERE thread = ?", (thread,)) if thread is not None else ("", ())
        yield from (entry for entry, _ in self._read(where, given))

    def find(self, thread: str, *kinds: EntryKind) -> list[Entry]:
        """Return the thread's entries of these kinds, in order.

        Raises:
            NotApprovedError: "tampered": one of them is not as this key's holder wrote it.
        """
        marks = ", ".join("?" * len(kinds))
        found = self._read(f"WHERE thread = ? AND kind IN ({marks})", (thread, *kinds))
        for entry, sealed in found:
            if not self._is_genuine(entry, sealed):
                refuse("tampered", f"entry {entry.sequence} of the decision log was changed")
        return [entry for entry, _ in found]

    def find_unsound(self, thread: str | None = None) -> int | None:
        """Return the number of the first entry that was changed, removed or inserted; None without one.

        All entries are read by the first call, by later ones those since, and those of `thread` again.
        """
        number, previous = self._checked
        last = self._connection.execute(
            "SELECT hash FROM decision_log WHERE sequence = ?", (number,)
        ).fetchone()
        if number and (last is None or last[0] != previous):
            return number
        own = self._read("WHERE thread = ? AND sequence <= ?", (thread, number)) if thread else []
        for entry, sealed in own:
            if not self._is_genuine(entry, sealed):
                return entry.sequence
        for entry, sealed in self._read("WHERE sequence > ?", (number,)):
            number += 1
            linked = (entry.sequence, entry.previous) == (number, previous)
            if not linked or not self._is_genuine(entry, sealed):
                return number
            previous = entry.hash
        self._checked = (number, previous)
        return None

    def head(self) -> str:
        """Hash of the last entry: keep it elsewhere to notice a log that was cut off."""
        return self._connection.read_log_head().hash

    def reaches(self, head: LogHead) -> bool:
        """Return whether this entry is in the log."""
        row = self._connection.execute(
            "SELECT hash FROM decision_log WHERE sequence = ?", (head.sequence,)
        ).fetchone()
        return head == LogHead(0, GENESIS) or (row is not None and row[0] == head.hash)

    def _read(self, where: str, given: tuple[Any, ...]) -> list[tuple[Entry, str]]:
        """Read entries and their seals, in order."""
        rows = self._connection.execute(f"SELECT * FROM decision_log {where} ORDER BY sequence", given)
        return [
            (
                Entry(
                    sequence=sequence,
                    thread=of_thread,
                    kind=kind,
                    body=_read_body(body),
                    at_s=at_s,
                    previous=previous,
                    hash=hashed,
                ),
                sealed,
            )
            for sequence, of_thread, kind, body, at_s, previous, hashed, sealed in rows.fetchall()
        ]

    def _is_genuine(self, entry: Entry, sealed: str) -> bool:
        return _hash_entry(entry) == entry.hash and is_sealed(self._key, "log", entry.hash, sealed)


def _hash_entry(entry: Entry) -> str:
    body = canonical_json(entry.body)
    return entry_hash(entry.sequence, entry.thread, entry.kind, body, entry.at_s, entry.previous)


def _read_body(text: str) -> dict[str, Any]:
    """Read the body; one that was damaged on disk becomes a body that no hash fits."""
    try:
        body = json.loads(text)
    except ValueError:
        body = None
    return body if isinstance(body, dict) else {"damaged": text}


def entry_hash(sequence: int, thread: str, kind: str, body: str, at_s: int, previous: str) -> str:
    """Return the SHA-256 over the entry, its canonical body and the hash before."""
    return hashlib.sha256(canonical_json([sequence, thread, kind, body, at_s, previous]).encode()).hexdigest()


def verify_chain(entries: Iterable[Entry], *, head: str | None = None) -> int | None:
    """Return the sequence number of the first bad entry; None for a sound chain.

    With `head`, a sound chain that ends elsewhere is bad at the number after its last entry.
    """
    sequence, previous = 0, GENESIS
    for entry in entries:
        sequence += 1
        if (entry.sequence, entry.previous, entry.hash) != (sequence, previous, _hash_entry(entry)):
            return sequence
        previous = entry.hash
    return None if head is None or head == previous else sequence + 1

"""The decision log: append-only, every entry chained to the one before by its hash.

A changed, removed or inserted entry is found by `verify_chain`. A log cut off at its end, or written anew as
a whole, is found only against a head that was kept elsewhere.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

from simulator.governance.gate.approvals import Clock
from simulator.governance.store.database import Store, canonical_json, transaction

EntryKind = Literal[
    "requested", "refused", "edited", "rejected", "committed", "executed", "observed", "replanned", "closed"
]
KINDS: tuple[str, ...] = get_args(EntryKind)
GENESIS = "0" * 64  # stands before the first entry


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
    """Appends to and reads from the log table of one store."""

    def __init__(self, connection: Store, clock: Clock) -> None:
        self._connection, self._clock = connection, clock
        self.listeners: dict[str, Callable[[str, dict[str, Any]], None]] = {}  # thread -> who is told

    def append(self, thread: str, kind: EntryKind, body: dict[str, Any]) -> None:
        """Add an entry; inside an open transaction it stands or falls with that."""
        with transaction(self._connection):
            last = self._connection.execute(
                "SELECT sequence, hash FROM decision_log ORDER BY sequence DESC LIMIT 1"
            ).fetchone()
            sequence, previous = (last[0] + 1, last[1]) if last else (1, GENESIS)
            text, at_s = canonical_json(body), int(self._clock())
            hashed = entry_hash(sequence, thread, kind, text, at_s, previous)
            self._connection.execute(
                "INSERT INTO decision_log VALUES (?, ?, ?, ?, ?, ?, ?)",
                (sequence, thread, kind, text, at_s, previous, hashed),
            )
        listener = self.listeners.get(thread)
        if listener is not None:
            listener(kind, body)

    def entries(self, thread: str | None = None) -> Iterator[Entry]:
        """All entries in order, or those of one thread."""
        where, given = ("WHERE thread = ?", (thread,)) if thread is not None else ("", ())
        rows = self._connection.execute(f"SELECT * FROM decision_log {where} ORDER BY sequence", given)
        for sequence, of_thread, kind, body, at_s, previous, hashed in rows.fetchall():
            yield Entry(
                sequence=sequence,
                thread=of_thread,
                kind=kind,
                body=_read_body(body),
                at_s=at_s,
                previous=previous,
                hash=hashed,
            )

    def head(self) -> str:
        """Hash of the last entry: keep it elsewhere to notice a log that was cut off."""
        last = self._connection.execute("SELECT hash FROM decision_log ORDER BY sequence DESC LIMIT 1")
        row = last.fetchone()
        return str(row[0]) if row else GENESIS


def _read_body(text: str) -> dict[str, Any]:
    """The body; one that was damaged on disk comes as a body that no hash fits."""
    try:
        body = json.loads(text)
    except ValueError:
        body = None
    return body if isinstance(body, dict) else {"damaged": text}


def entry_hash(sequence: int, thread: str, kind: str, body: str, at_s: int, previous: str) -> str:
    """SHA-256 over the entry, its canonical body and the hash before."""
    return hashlib.sha256(canonical_json([sequence, thread, kind, body, at_s, previous]).encode()).hexdigest()


def verify_chain(entries: Iterable[Entry], *, head: str | None = None) -> int | None:
    """Sequence number of the first bad entry, None for a sound chain.

    With `head`, a sound chain that ends elsewhere is bad at the number after its last entry.
    """
    sequence, previous = 0, GENESIS
    for entry in entries:
        sequence += 1
        wanted = entry_hash(
            sequence, entry.thread, entry.kind, canonical_json(entry.body), entry.at_s, previous
        )
        if (entry.sequence, entry.previous, entry.hash) != (sequence, previous, wanted):
            return sequence
        previous = entry.hash
    return None if head is None or head == previous else sequence + 1

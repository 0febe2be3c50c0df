"""The audit log of the review app: every sign-in, ruling and label, also those that were turned away.

Lines of JSON that are only added to. Each is chained to the one before and sealed with the store's key, like
the gate's decision log, so a line that was changed or taken out is noticed; a mark beside the file tells how
far it had come, so a sign-out that was cut off its end is noticed, too.
"""

import json
import time
from pathlib import Path
from typing import Any

from roles.errors import UserError
from simulator.governance.log import Entry, entry_hash, verify_chain
from simulator.governance.seals import canonical_json, is_sealed, seal
from simulator.governance.store import GENESIS, HighWaterMark, LogHead
from simulator.line_files import LineFile, read_lines

PRIVATE = 0o600


class AuditLog:
    """The log in one file; it keeps other processes out while it is open."""

    def __init__(self, path: Path, *, key: bytes) -> None:
        """
        Raises:
            UserError: a line is not as it was written with this key, lines were cut off, or another process
                has the file open.
        """
        self._path, self._key = path, key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=PRIVATE)
        path.chmod(PRIVATE)
        self._file = LineFile(path, alone=True)
        self._mark = HighWaterMark(path.with_name(f"{path.name}.mark"), key=key)
        known, entries = self._mark.read(), self.read()
        if known.sequence and known not in [LogHead(one.sequence, one.hash) for one in entries]:
            raise UserError(
                f"{path} lacks line {known.sequence}: lines were cut off its end; put the whole file back, or"
                f" keep it as evidence and move it and {path.name}.mark away to go on"
            )
        self._last = entries[-1] if entries else None

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        self._mark.close()

    def append(self, reviewer: str, action: str, subject: str, outcome: str, **told: Any) -> None:
        """Add an entry; it is on disk when this returns."""
        sequence, previous = (self._last.sequence + 1, self._last.hash) if self._last else (1, GENESIS)
        body = {"reviewer": reviewer, "outcome": outcome, **told}
        at_s = int(time.time())
        hashed = entry_hash(sequence, subject, action, canonical_json(body), at_s, GENESIS, previous)
        line: dict[str, Any] = {
            "sequence": sequence,
            "thread": subject,
            "kind": action,
            "body": body,
            "at_s": at_s,
        }
        line |= {"own": GENESIS, "previous": previous, "hash": hashed}
        self._file.add(canonical_json({**line, "seal": seal(self._key, "log", hashed)}).encode())
        self._mark.advance(LogHead(sequence, hashed), durable=True)
        self._last = Entry(**line)

    def read(self) -> list[Entry]:
        """Return all entries in order.

        Raises:
            UserError: names the first line that is not as it was written.
        """
        entries = []
        for number, line in enumerate(read_lines(self._path), start=1):
            try:
                values = json.loads(line)
                sealed = values.pop("seal")
                entry = Entry(**values)
            except (ValueError, TypeError, KeyError, AttributeError):
                raise self._complain(number) from None
            if not is_sealed(self._key, "log", entry.hash, sealed):
                raise self._complain(number)
            entries.append(entry)
        unsound = verify_chain(entries)
        if unsound is not None:
            raise self._complain(unsound)
        return entries

    def _complain(self, number: int) -> UserError:
        return UserError(
            f"{self._path}:{number} is not as it was written with this key: keep the file as evidence,"
            " and move it away to go on"
        )

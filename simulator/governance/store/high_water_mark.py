"""The high-water mark of a store: how far its decision log had come, kept in a file of its own.

An old copy of the store, or a log that was cut off, lacks an entry that the mark knows: that is noticed when
the store is opened. The mark follows transactions that wait for the disk (rulings, commits) and stores that
are closed in order, so it is never ahead of what a power cut leaves. Whoever can write both files can take
both back, or delete the mark: keep it on another disk, or under another user, against that.
"""

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from roles.errors import UserError
from simulator.governance.gate.seals import is_sealed, seal
from simulator.governance.store.database import LogHead, Store
from simulator.governance.store.decision_log import DecisionLog

LENGTH = 150  # of the file, in bytes: it is written over in place, in one call


class HighWaterMark:
    """The mark in one file, under the key's seal; several processes may move it."""

    def __init__(self, path: Path, *, key: bytes) -> None:
        """Open the file, and make it where it is missing.

        Raises:
            UserError: it cannot be written.
        """
        self._path, self._key = path, key
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
        except OSError as error:
            raise UserError(
                f"cannot write the store's mark {str(path)!r}: {error.strerror}; make it writable"
            ) from None

    def read(self) -> LogHead | None:
        """Return the mark; None where there is none yet.

        Raises:
            UserError: the file does not hold a mark that this key wrote.
        """
        text = os.pread(self._file, LENGTH + 1, 0)
        if not text.strip(b"\0 \n"):
            return None
        try:
            number, hashed, sealed = text.decode("ascii").split()
            head = LogHead(int(number), hashed)
        except ValueError:
            head, sealed = LogHead(0, ""), ""
        if not is_sealed(self._key, "mark", list(head), sealed):
            raise UserError(
                f"{self._path} holds no mark that was written with this key; use the store's own key, or "
                "delete the file to trust the store as it is"
            )
        return head

    def advance(self, head: LogHead) -> None:
        """Move the mark to this entry, unless it is there or beyond.

        Raises:
            OSError: the file cannot be written, or holds something else by now.
        """
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            try:
                known = self.read()
            except UserError as error:
                raise OSError(str(error)) from None
            if known is None or known.sequence < head.sequence:
                line = f"{head.sequence} {head.hash} {seal(self._key, 'mark', list(head))}"
                os.pwrite(self._file, f"{line:<{LENGTH - 1}}\n".encode("ascii"), 0)
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


@contextmanager
def marking(store: Store, log: DecisionLog, path: Path, *, key: bytes) -> Iterator[None]:
    """Keep the mark of the store at `path` in the file beside it, PATH.mark, which may be a link elsewhere.

    Raises:
        UserError: the store lacks what the mark knows, or the mark is another store's or cannot be written.
    """
    place = path.with_name(f"{path.name}.mark")
    mark = HighWaterMark(place, key=key)
    try:
        known = mark.read()
        if known is not None and not log.reaches(known):
            raise UserError(
                f"{path} lacks entry {known.sequence} of its decision log as {place} knows it: this is an"
                " old copy, or its log was changed; put the newer store back, or delete that file to trust"
                " this one"
            )
        store.keep_mark = mark.advance
        yield
        with suppress(sqlite3.Error, OSError):  # the mark stays where it is
            store.settle()
    finally:
        store.keep_mark = None
        mark.close()

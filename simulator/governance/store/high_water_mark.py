"""The high-water mark of a store: how far its decision log had come, kept in a file of its own.

An old copy of the store, or a log that was cut off, lacks an entry that the mark knows. Every transaction
holds the mark's lock, looks for its entries and moves it on. Two heads stand in it: one that has waited for
the disk, and the latest, which counts until the machine starts anew: a power cut may take it from the store.
Whoever can write both files can take both back, or delete the mark: keep it on another disk, or under another
user, against that.
"""

import fcntl
import os
from functools import cache
from pathlib import Path

from roles.errors import UserError
from simulator.governance.gate.seals import is_sealed, seal
from simulator.governance.store.database import GENESIS, LogHead

LENGTH = 320  # of the file, in bytes: it is written over in place, in one call
BOOT_FILE = Path("/proc/sys/kernel/random/boot_id")  # another one after every start of the machine


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
            text = f"{line:<{LENGTH - 1}}\n".encode("ascii")
            os.pwrite(self._file, text, 0)
            self._known = (text, *moved)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _read(self) -> tuple[LogHead, LogHead]:
        """Return what waited for the disk, and the latest."""
        text = os.pread(self._file, LENGTH + 1, 0)
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

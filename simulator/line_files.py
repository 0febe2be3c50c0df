"""Files of lines that are only added to: what was added is on disk, and a kill leaves whole lines.

A kill can cut the last line short; readers leave such a rest out, and the next line replaces it.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from roles.errors import UserError


def sync_folder(path: Path) -> None:
    """Make new names inside a folder durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_lines(path: Path) -> list[bytes]:
    """The whole lines of a file without their ends; none where there is no file."""
    content = path.read_bytes() if path.is_file() else b""
    return content[: content.rfind(b"\n") + 1].split(b"\n")[:-1]


class LineFile:
    """A file opened to add lines; a context manager. Several processes may add to it at a time.

    Example: with LineFile(Path("labels.jsonl")) as file: file.add(b'{"kind": "verdict"}')
    """

    def __init__(self, path: Path, *, alone: bool = False) -> None:
        """Open or make the file and its folders; a last line that a kill cut short is dropped.

        `alone` keeps other processes out until it is closed.

        Raises:
            UserError: `alone`, and another process has it open.
            OSError: the place cannot be written to.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        is_new = not path.exists()
        self.path, self._alone = path, alone
        self._file = path.open("a+b", buffering=0)
        if alone:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._file.close()
                raise UserError(f"{path} is in use by another process; wait, or name another file") from None
        if is_new:
            sync_folder(path.parent)
        with self._locked():
            self._drop_rest()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; further lines cannot be added."""
        self._file.close()

    def add(self, *lines: bytes) -> None:
        """Append lines; they are on disk when this returns.

        Raises:
            OSError: the disk is full or the like; none of the lines counts.
        """
        content = b"".join(line + b"\n" for line in lines)
        with self._locked():
            end = self._drop_rest()
            try:
                left = memoryview(content)
                while left:
                    left = left[self._file.write(left) :]
            except OSError:
                with suppress(OSError):  # the first error is the one to report
                    self._file.truncate(end)
                raise
            os.fsync(self._file.fileno())

    def _drop_rest(self) -> int:
        """Cut off what stands after the last whole line; the size that is left."""
        end = self._file.seek(0, os.SEEK_END)
        if end:
            self._file.seek(end - 1)
            if self._file.read(1) != b"\n":
                self._file.seek(0)
                end = self._file.read().rfind(b"\n") + 1
                self._file.truncate(end)
        return end

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if self._alone:
            yield
            return
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

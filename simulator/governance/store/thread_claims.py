"""Claims on threads: one player at a time goes on with a thread of a store."""

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from roles.errors import InfrastructureError


class ThreadClaims:
    """Claims on the threads of one store, each a locked file STORE.playing-... beside it.

    Two that play one thread fork its checkpoints, and each displays its own request: rulings on either are
    superseded by the other, and a case that was carried out may end as not approved. Displaying requests
    and ruling on them needs no claim.
    """

    def __init__(self, store: Path | None) -> None:
        """`store`: the store's file; None for one in memory, whose threads nobody else can play."""
        self._store = store

    @contextmanager
    def hold(self, thread: str) -> Iterator[None]:
        """Be the only player of the thread meanwhile; the claim of a process that was killed is free.

        Raises:
            InfrastructureError: the thread is being played, in this process or another.
        """
        if self._store is None:
            yield
            return
        name = hashlib.sha256(thread.encode()).hexdigest()[:32]
        path = self._store.with_name(f"{self._store.name}.playing-{name}")
        descriptor = self._lock(path, thread)
        try:
            yield
        finally:
            with suppress(OSError):
                path.unlink()  # before the lock goes: who waits for this very file sees that it is gone
            os.close(descriptor)

    def _lock(self, path: Path, thread: str) -> int:
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(descriptor).st_ino == path.stat().st_ino:
                    return descriptor
            except FileNotFoundError:  # removed between open and lock
                pass
            except BlockingIOError:
                os.close(descriptor)
                raise InfrastructureError(
                    f"thread {thread!r} is being played already; play it again when that has ended"
                ) from None
            os.close(descriptor)

"""Opens a store's log with its mark, and says what is wrong with a file that cannot be read."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from roles.errors import UserError
from simulator.governance.gate.approvals import Clock, NotApprovedError
from simulator.governance.store.database import GENESIS, LogHead, Store
from simulator.governance.store.decision_log import DecisionLog
from simulator.governance.store.high_water_mark import HighWaterMark

_OURS = (sqlite3.OperationalError, sqlite3.ProgrammingError, sqlite3.IntegrityError)


@contextmanager
def naming_damage(path: Path | None) -> Iterator[None]:
    """Turn what SQLite says of a damaged file into a message that names the file.

    Raises:
        UserError: the file is damaged.
    """
    try:
        yield
    except (NotApprovedError, RecursionError, OverflowError, UnicodeEncodeError) as error:
        raise UserError(f"the store {str(path)!r} was changed: {error}; put a sound copy back") from error
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        is_damage = not isinstance(error, _OURS) or "decode" in str(error)  # a text that is no UTF-8
        if not is_damage:
            raise
        raise UserError(f"the store {str(path)!r} is damaged ({error}); put a sound copy back") from error


@contextmanager
def marking(store: Store, clock: Clock, path: Path | None, *, key: bytes) -> Iterator[DecisionLog]:
    """Open the log of a store, with its mark in the file beside it, PATH.mark, which may be a link elsewhere.

    Raises:
        UserError: the log was changed, the store lacks what the mark knows, or the mark is another store's or
            cannot be written.
    """
    place = path and path.with_name(f"{path.name}.mark")
    mark = HighWaterMark(place, key=key) if place else None
    log = DecisionLog(store, clock, key=key, mark=mark)
    try:
        known = mark.read() if mark else LogHead(0, GENESIS)
        try:
            log.head()
        except NotApprovedError as error:
            raise UserError(f"{path}: {error}; use the store's own key, or another store") from None
        if not log.reaches(known):
            raise UserError(
                f"{path} lacks entry {known.sequence} of its decision log as {place} knows it: this is an"
                " old copy, or its log was changed; put the newer store back, or delete that file to trust"
                " this one"
            )
        yield log
        with suppress(sqlite3.Error, OSError):  # the mark stays where it is
            log.settle()
    finally:
        if mark is not None:
            mark.close()

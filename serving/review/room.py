"""Everything that the pages of one review app work on: the gate's store, queue, labels, reviewers, audit log.

The audit log has every sign-in, ruling and label, also those that were turned away. Its lines of JSON are
only added to. Each is chained to the one before and sealed with the store's key, like the gate's decision
log, so a line that was changed or taken out is noticed; a mark beside the file tells how far it had come, so
a sign-out that was cut off its end is noticed, too.
"""

import hashlib
import hmac
import json
import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from roles.errors import UserError
from serving.review.turns import SeatDesk, SeatTurn
from simulator.governance.log import Entry, entry_hash, verify_chain
from simulator.governance.proposal import ReviewRequest
from simulator.governance.runner import GovernanceServices, open_services
from simulator.governance.seals import NotApprovedError, canonical_json, find_key, is_sealed, seal
from simulator.governance.store import GENESIS, HighWaterMark, LogHead
from simulator.line_files import LineFile, read_lines
from training.feedback.labels import Label, QueuedItem, labels_beside, read_labels, read_queue

COOKIE = "emads_review"
SIGN_OUT = "sign_out"  # what the audit log calls the end of a session
SESSION_S = 12 * 3600
NONCE_CHARS = 32
MAX_COOKIE_CHARS = 2_000
PRIVATE = 0o600


@dataclass(frozen=True, slots=True)
class Session:
    """One browser's session.

    Example: Session(name="ann", nonce="0f" * 16, ends_s=43200)
    """

    name: str  # of the reviewer; "" before the sign-in
    nonce: str  # 32 hexadecimal digits
    ends_s: int  # UNIX time

    @property
    def mark(self) -> str:
        """Return what names the session and opens nothing."""
        return hashlib.sha256(self.nonce.encode()).hexdigest()[:NONCE_CHARS]


def make_token(key: bytes, name: str) -> str:
    """Return the reviewer's personal token, 64 hexadecimal digits; always the same under one key."""
    return seal(key, "token", name)


def find_reviewer(key: bytes, names: Iterable[str], token: str) -> str | None:
    """Return whose token it is; None for nobody's. Every name is compared, however early one fits."""
    found = [name for name in names if hmac.compare_digest(make_token(key, name).encode(), token.encode())]
    return found[0] if found else None


def open_session(name: str, now_s: float) -> Session:
    """Return a new session; a sign-in never takes over the one before."""
    return Session(name, secrets.token_hex(NONCE_CHARS // 2), int(now_s) + SESSION_S)


def write_cookie(key: bytes, session: Session) -> str:
    """Write the session as a cookie's value."""
    name = urlsafe_b64encode(session.name.encode()).decode()
    fields = [name, session.nonce, str(session.ends_s)]
    return ".".join([*fields, seal(key, "session", fields)])


def read_cookie(key: bytes, value: str | None, names: Iterable[str], now_s: float) -> Session | None:
    """Return the session in a cookie; None where it is none of ours, has ended, or its reviewer left."""
    if value is None or len(value) > MAX_COOKIE_CHARS:
        return None
    *fields, sealed = value.split(".")
    if len(fields) != 3 or not is_sealed(key, "session", fields, sealed):
        return None
    name, nonce, ends = urlsafe_b64decode(fields[0]).decode(), fields[1], int(fields[2])
    if now_s >= ends or (name and name not in names):
        return None
    return Session(name, nonce, ends)


def make_form_token(key: bytes, session: Session, path: str) -> str:
    """Return the token of a form that is sent to this path in this session, and to no other."""
    return seal(key, "form", [session.name, session.nonce, path])


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewSettings:
    """Settings of a review: what, by whom, and how.

    Example: ReviewSettings(store=Path("company.db"), reviewers=("ann", "ben"))
    """

    store: Path  # the gate's; its key, the labels and the audit log stand beside it
    reviewers: tuple[str, ...]  # who may sign in
    queue: Path | None = None  # answers to judge; None: the gate's requests alone
    labels_per_item: int = 1  # labels of different reviewers that an item needs
    four_eyes: bool = False  # a plan needs the approvals of two reviewers
    is_secure: bool = False  # browsers reach it by https alone, through a proxy

    @property
    def labels(self) -> Path:
        """Return the file that labels are added to."""
        return labels_beside(self.store)

    @property
    def audit(self) -> Path:
        """Return the file of the audit log."""
        return self.store.with_name(f"{self.store.name}.audit.jsonl")

    def read_key(self) -> bytes:
        """Return the store's key; see `find_key`."""
        return find_key(self.store.with_name(f"{self.store.name}.key"))


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


@dataclass(slots=True, kw_only=True)
class Room:
    """An open review app's data."""

    settings: ReviewSettings
    key: bytes
    services: GovernanceServices
    audit: AuditLog
    seats: SeatDesk
    ended: set[str] = field(default_factory=set)  # marks of sessions that were signed out
    _labels: tuple[object, list[Label]] = (None, [])  # as of a state of the file
    _by_item: dict[str, list[Label]] = field(default_factory=dict)
    _items: tuple[object, dict[str, QueuedItem]] = field(default_factory=lambda: (None, {}))
    _requests: dict[str, ReviewRequest] = field(default_factory=dict)  # sealed, so never shown anew

    def list_labels(self) -> Sequence[Label]:
        """Return all labels, oldest first; the file is read again when it has changed."""
        stamp = _stamp(self.settings.labels)
        if stamp != self._labels[0]:
            self._labels, self._by_item = (stamp, read_labels(self.settings.labels) if stamp else []), {}
            for label in self._labels[1]:
                self._by_item.setdefault(label.item, []).append(label)
        return self._labels[1]

    def labels_of(self, item: QueuedItem) -> list[Label]:
        """Return the labels that are about an item, oldest first."""
        self.list_labels()
        found = [label for name in item.label_names for label in self._by_item.get(name, ())]
        return sorted(found, key=lambda label: label.time)

    def list_items(self) -> Mapping[str, QueuedItem]:
        """Return the queue's items by id, in its order; the file is read again when it has changed."""
        path = self.settings.queue
        stamp = None if path is None else _stamp(path)
        if stamp != self._items[0]:
            items = [] if path is None or stamp is None else read_queue(path)
            self._items = (stamp, {item.id: item for item in items})
        return self._items[1]

    def find_case(self, turn: SeatTurn) -> tuple[str, str] | None:
        """Return thread and case of a seat's turn: its session ends in thread and seat."""
        names = turn.session.removesuffix(f"/{turn.seat}").split("/")
        for number in range(len(names)):
            thread = "/".join(names[number:])
            for entry in self.services.log.find(thread, "opened"):
                return thread, str(entry.body["case"])
        return None

    def read_request(self, interrupt_id: str) -> ReviewRequest | None:
        """Return a request as it was shown first; None where there is none, or the log was changed."""
        if interrupt_id not in self._requests:
            try:
                display = self.services.gate.find(interrupt_id)
            except NotApprovedError:
                return None
            if display is None:
                return None
            self._requests[interrupt_id] = display.request
        return self._requests[interrupt_id]


@asynccontextmanager
async def open_room(settings: ReviewSettings) -> AsyncIterator[Room]:
    """Open the data, and register the reviewers with the gate.

    Raises:
        UserError: a store, key, queue or log that cannot be used, or a name that cannot review.
    """
    key = settings.read_key()
    audit = AuditLog(settings.audit, key=key)
    try:
        async with open_services(settings.store, key=key, four_eyes=settings.four_eyes) as services:
            for name in settings.reviewers:
                try:
                    services.reviewers.register(name)
                except NotApprovedError as error:
                    raise UserError(f"--reviewer {name!r}: {error}") from None
            ended = {entry.thread for entry in audit.read() if entry.kind == SIGN_OUT}
            seats = SeatDesk(settings.store)
            room = Room(settings=settings, key=key, services=services, audit=audit, seats=seats, ended=ended)
            room.list_items()
            seats.list_turns()
            room.list_labels()
            yield room
    finally:
        audit.close()


def _stamp(path: Path) -> tuple[int, int] | None:
    """Return what changes when the file does; None without a file."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_size

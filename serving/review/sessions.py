"""Reviewers' personal tokens, their sessions in the browser, and the token of every form.

All are HMACs under the store's key, so only ends are kept, in the audit log: a token holds while its name is
given at the start, a session until it expires or its reviewer signs out, and a restart ends neither.
"""

import hashlib
import hmac
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from dataclasses import dataclass

from simulator.governance.seals import is_sealed, seal

COOKIE = "emads_review"
SIGN_OUT = "sign_out"  # what the audit log calls the end of a session
SESSION_S = 12 * 3600
NONCE_CHARS = 32
MAX_COOKIE_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class Session:
    """One browser's session.

    Example: Session(name="ann", nonce="0f" * 16, ends_s=43200)
    """

    name: str  # of the reviewer; "" before the sign-in
    nonce: str  # 32 hexadecimal digits
    ends_s: int  # UNIX time

    @property
    def is_signed_in(self) -> bool:
        """Tell whether a reviewer has signed in."""
        return bool(self.name)

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


def is_form_token(key: bytes, session: Session, path: str, given: str) -> bool:
    """Return whether the form was made by us for this session and path."""
    return is_sealed(key, "form", [session.name, session.nonce, path], given)

"""The store's key, the seals that it makes, and the refusal that everything at the gate raises."""

import hashlib
import hmac
import json
import os
import secrets
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NoReturn

from roles.errors import UserError

KEY_BYTES = 32
ROOT = 0
KEY_VARIABLE = "EMADS_APPROVAL_KEY"

Clock = Callable[[], float]  # seconds since 1970, UTC
Purpose = Literal["log", "mark", "seat", "token", "session", "form"]


class NotApprovedError(Exception):
    """Something is not approved. `reason` is one word; the message is for people."""

    def __init__(self, reason: str, explanation: str) -> None:
        super().__init__(explanation)
        self.reason = reason


def refuse(reason: str, explanation: str) -> NoReturn:
    """Raise NotApprovedError."""
    raise NotApprovedError(reason, explanation)


def canonical_json(value: Any) -> str:
    """Write the canonical JSON of a value: sorted keys, no spaces, ASCII, no NaN.

    Raises:
        ValueError, TypeError: not a JSON value.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def digest_json(value: Any) -> str:
    """Return the SHA-256 of the canonical JSON, 64 hexadecimal digits."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def seal(key: bytes, purpose: Purpose, value: Any) -> str:
    """Return the HMAC-SHA256 of a JSON value; a seal of one purpose does not hold for another."""
    text = f"emads {purpose} v1\n{canonical_json(value)}"
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def is_sealed(key: bytes, purpose: Purpose, value: Any, given: Any) -> bool:
    """Return whether this is the key's seal on the value."""
    return isinstance(given, str) and hmac.compare_digest(given.encode(), seal(key, purpose, value).encode())


def read_or_create_key(path: Path) -> bytes:
    """Read the signing key in a file that only its owner can read; make it where it is missing.

    Raises:
        UserError: others can read or write the file, it is theirs, or it does not hold a key.
    """
    if os.path.lexists(path):
        return _read_key(path)
    key = secrets.token_bytes(KEY_BYTES)
    try:
        with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.") as file:  # mode 0600
            file.write(key.hex() + "\n")
            file.flush()
            os.fsync(file.fileno())
            os.link(file.name, path)  # whole or not at all, whatever another process does meanwhile
    except FileExistsError:
        return _read_key(path)
    except OSError as error:
        raise UserError(f"cannot make the approval key {str(path)!r}: {error.strerror}") from None
    return key


def find_key(path: Path) -> bytes:
    """Find the key in the environment variable EMADS_APPROVAL_KEY where it is set, else in the file.

    Raises:
        UserError: see `read_or_create_key`; or the variable does not hold 64 hexadecimal digits.
    """
    given = os.environ.get(KEY_VARIABLE)
    return read_or_create_key(path) if given is None else _parse_key(given, KEY_VARIABLE)


def _read_key(path: Path) -> bytes:
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), encoding="ascii") as file:
            found = os.fstat(file.fileno())
            text = file.read(4 * KEY_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the approval key {str(path)!r}: {error}") from None
    if not stat.S_ISREG(found.st_mode) or stat.S_IMODE(found.st_mode) & 0o077:
        raise UserError(f"others may read the approval key {str(path)!r}; run: chmod 600 {path}")
    if found.st_uid not in (os.geteuid(), ROOT):
        raise UserError(f"the approval key {str(path)!r} is another user's; make a key of your own")
    return _parse_key(text, str(path))


def _parse_key(text: str, source: str) -> bytes:
    try:
        key = bytes.fromhex(text.strip())
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise UserError(
            f"{source} holds no approval key ({2 * KEY_BYTES} hexadecimal digits); make a new one"
        )
    return key

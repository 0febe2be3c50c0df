"""Seals: an HMAC by the store's key on what the gate, the desk and the log have written."""

import hashlib
import hmac
from typing import Any, Literal

from simulator.governance.store.database import canonical_json

Purpose = Literal["log", "mark", "token", "session", "form"]


def seal(key: bytes, purpose: Purpose, value: Any) -> str:
    """Return the HMAC-SHA256 of a JSON value; a seal of one purpose does not hold for another."""
    text = f"emads {purpose} v1\n{canonical_json(value)}"
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def is_sealed(key: bytes, purpose: Purpose, value: Any, given: Any) -> bool:
    """Return whether this is the key's seal on the value."""
    return isinstance(given, str) and hmac.compare_digest(given.encode(), seal(key, purpose, value).encode())

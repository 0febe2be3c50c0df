"""Names of the adapters by which a model plays a role; needs no library."""

from collections.abc import Mapping
from typing import Any

SINGLE = "default"  # the adapter of a model that one role has to itself
SHARED = "team"  # the adapter that all roles share
START = "start_"  # then an adapter's name: what it was when the stage began, frozen


def adapter_of(model: Any, role: str) -> str | None:
    """Return the adapter that plays `role` in this model; None for full weights.

    Raises:
        ValueError: a model with adapters, none of which is the role's.
    """
    names = getattr(model, "peft_config", None)
    if not isinstance(names, Mapping):
        return None
    for name in (role, SHARED, SINGLE):
        if name in names:
            return name
    raise ValueError(f"no adapter of role {role!r} among {sorted(names)}")

"""A trial breaks something once and says what was wrong afterwards."""

from collections.abc import Callable, Iterator
from typing import NamedTuple


class Trial(NamedTuple):
    """One thing to break.

    Example: Trial("grpo-3", "any time", lambda: "")
    """

    name: str  # unique in its check
    group: str  # trials of a group are counted together in the table
    call: Callable[[], str]  # what was wrong, "" where nothing was


Trials = Iterator[Trial]

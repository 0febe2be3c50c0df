"""Makes garbage collection rare while many episodes are in flight; older objects are not looked at.

The interpreter collects after 700 new objects. Thousands of live episodes hold millions that are all in use;
looking at them again and again took more time than the episodes themselves.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

OBJECTS_PER_EPISODE = 1_000  # about what one in flight holds
FEWEST, MOST = 50_000, 2_000_000  # new objects between two collections

_before: list[tuple[int, int, int]] = []  # the limits found by each who is inside, the first one's first


@contextmanager
def deferred_garbage_collection(in_flight: int) -> Iterator[None]:
    """Collect when new objects outnumber those that `in_flight` episodes hold; older objects stay unseen.

    May be nested. Limits that are wider already stay, and a collector that is off stays off.
    """
    _before.append(gc.get_threshold())
    if len(_before) == 1:
        gc.freeze()
    young, wanted = gc.get_threshold()[0], min(MOST, max(FEWEST, OBJECTS_PER_EPISODE * in_flight))
    if 0 < young < wanted:
        gc.set_threshold(wanted, 10, 10)
    try:
        yield
    finally:
        first = _before[0]
        _before.pop()
        if not _before:
            gc.set_threshold(*first)
            gc.unfreeze()

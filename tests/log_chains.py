"""Checks the chain of a decision log without its key."""

from collections.abc import Iterable

from simulator.governance.log import Entry, entry_hash
from simulator.governance.seals import canonical_json
from simulator.governance.store import GENESIS


def verify_chain(entries: Iterable[Entry], *, head: str | None = None) -> int | None:
    """Return the sequence number of the first bad entry; None for a sound chain.

    With `head`, a sound chain that ends elsewhere is bad at the number after its last entry.
    """
    sequence, previous = 0, GENESIS
    for entry in entries:
        sequence += 1
        fields = (entry.sequence, entry.thread, entry.kind, canonical_json(entry.body))
        hashed = entry_hash(*fields, entry.at_s, entry.own, entry.previous)
        if (entry.sequence, entry.previous, entry.hash) != (sequence, previous, hashed):
            return sequence
        previous = entry.hash
    return None if head is None or head == previous else sequence + 1

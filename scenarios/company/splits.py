"""Keeps the splits apart by the text that a model sees, not by hidden facts alone."""

import json
import zlib
from collections.abc import Sequence

BUCKETS: dict[str, range] = {"train": range(6), "validation": range(6, 8), "test": range(8, 10)}
BUCKETS["test-new-sectors"] = BUCKETS["test"]  # apart from test by its sectors


def belongs_to(split: str, words: Sequence[object]) -> bool:
    """Return whether texts that show these values belong to the split: any values belong to exactly one
    of train, validation and test.

    Example: sum(belongs_to(split, ["bank", 40, [30, 26]]) for split in ("train", "validation", "test")) == 1
    """
    return zlib.crc32(json.dumps(words).encode()) % 10 in BUCKETS[split]

"""Precedents: past decisions, recalled by similarity of the briefs; deterministic, without a model.

A case is the set of its words per seat, a number standing for its ten and the word before it; two cases are
as similar as these sets (Jaccard). What a call recalls ends at a horizon that is fixed when its threads are
opened, so that it depends on neither the order of arrival nor a resume.
"""

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise

from typing_extensions import TypedDict

from simulator.governance.store.database import Store, canonical_json, transaction

MAX_RECALLED, LEAST_SIMILARITY, MOST_COMPARED = 3, 0.3, 500


class Precedent(TypedDict):
    """A closed case.

    Example: {"case": "team/test/0/7/2", "option": "B", "status": "completed", "alerts": []}
    """

    case: str
    option: str
    status: str
    alerts: list[str]  # seats whose KPI fell under its floor at the last attempt


class PrecedentStore:
    """Closed cases of one store."""

    def __init__(self, connection: Store) -> None:
        self._connection = connection
        self._read = lru_cache(maxsize=4)(self._read_up_to)

    def horizon(self) -> int:
        """Return the number of the newest precedent, 0 without any."""
        row = self._connection.execute("SELECT coalesce(max(sequence), 0) FROM precedents").fetchone()
        return int(row[0])

    def open_thread(self, thread: str, case_key: str, horizon: int) -> int:
        """Note the thread and its horizon; a thread that was opened before keeps its first one, returned.

        Raises:
            ValueError: the thread is another case's.
        """
        with transaction(self._connection):
            self._connection.execute(
                "INSERT OR IGNORE INTO threads VALUES (?, ?, ?)", (thread, case_key, horizon)
            )
            row = self._connection.execute(
                "SELECT case_key, horizon FROM threads WHERE thread = ?", (thread,)
            ).fetchone()
        if row[0] != case_key:
            raise ValueError(f"thread {thread!r} is of case {row[0]!r}, not {case_key!r}")
        return int(row[1])

    def add(self, thread: str, features: frozenset[str], precedent: Precedent) -> None:
        """Keep a closed case, once per thread."""
        body = canonical_json({"features": sorted(features), **precedent})
        with transaction(self._connection):
            self._connection.execute(
                "INSERT OR IGNORE INTO precedents (thread, body) VALUES (?, ?)", (thread, body)
            )

    def recall(self, features: frozenset[str], horizon: int) -> list[Precedent]:
        """Recall at most 3 cases of 0.3 similarity or more, the nearest first, of the 500 before the horizon.

        Equally near ones come in the order of age, the older first.
        """
        scored = [
            (similarity, precedent)
            for known, precedent in self._read(horizon)
            if (similarity := compute_similarity(features, known)) >= LEAST_SIMILARITY
        ]
        ranked = sorted(scored, key=lambda pair: -pair[0])
        return [precedent for _, precedent in ranked[:MAX_RECALLED]]

    def _read_up_to(self, horizon: int) -> list[tuple[frozenset[str], Precedent]]:
        rows = self._connection.execute(
            "SELECT body FROM precedents WHERE sequence <= ? ORDER BY sequence DESC LIMIT ?",
            (horizon, MOST_COMPARED),
        ).fetchall()
        bodies = [json.loads(body) for (body,) in reversed(rows)]
        return [(frozenset(body.pop("features")), body) for body in bodies]


def list_features(briefs: Mapping[str, str]) -> frozenset[str]:
    """List a case's features: "cto stakes 8" for "Stakes 83." in the CTO's brief, "bank" for a word alone."""
    found: set[str] = set()
    for role, brief in briefs.items():
        words = re.findall(r"\w+", brief.lower())
        found.update(word for word in words if not word.isdecimal())
        found.update(
            f"{role} {word} {number[:-1] or '0'}" for word, number in pairwise(words) if number.isdecimal()
        )
    return frozenset(found)


def compute_similarity(one: frozenset[str], other: frozenset[str]) -> float:
    """Compute shared features over all features, in [0, 1]."""
    return len(one & other) / len(one | other) if one or other else 1.0

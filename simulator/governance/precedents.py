"""Precedents: past decisions, recalled by company and by similarity; deterministic, without a model.

A case is the set of its words per seat, a number standing for its ten and the word before it; two cases are
as similar as these sets (Jaccard). Cases of the same company come first, the newest before the older. What a
call recalls ends at a horizon that is fixed when its threads are opened, so that it depends on neither the
order of arrival nor a resume.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

from typing_extensions import TypedDict  # typing's own has no JSON schema before Python 3.12

from scenarios.execution import ActualEffect
from simulator.governance.log import DecisionLog

MAX_RECALLED, LEAST_SIMILARITY, MOST_COMPARED = 3, 0.3, 500
MAX_OF_COMPANY = 8  # closed cases of the same company


class Precedent(TypedDict):
    """A closed case.

    Example: {"case": "team/test/0/7/2", "company": "Northbank is a bank. ...", "option": "B",
              "status": "completed", "alerts": [], "worth": 90, "promised": 100, "actuals": []}
    """

    case: str
    company: str  # what the case says of the company: the same in all of its cases; "" where nothing
    option: str
    status: str
    alerts: list[str]  # seats whose KPI fell under its floor at the last attempt
    worth: int  # k$ in place at the end
    promised: int  # k$ that the last plan promised
    actuals: list[ActualEffect]  # of everything that was bought in the case


class Precedents:
    """Closed cases of one store: what their last entries in the log tell."""

    def __init__(self, log: DecisionLog) -> None:
        self._log = log
        self._read = lru_cache(maxsize=2)(self._read_up_to)  # some 20 KB a case

    def horizon(self) -> int:
        """Return the number of closed cases."""
        self._log.catch_up()
        return len(self._log.closings)

    def recall(self, features: frozenset[str], horizon: int, *, company: str = "") -> list[Precedent]:
        """Recall at most 8 cases of the same company, then 3 others of 0.3 similarity or more.

        They are of the 500 before the horizon. Of one company the newest come first; of equally near ones
        the older.
        """
        known = self._read(horizon)
        own = [precedent for _, precedent in known if company and precedent["company"] == company]
        scored = [
            (similarity, precedent)
            for words, precedent in known
            if precedent not in own
            and (similarity := compute_similarity(features, words)) >= LEAST_SIMILARITY
        ]
        ranked = sorted(scored, key=lambda pair: -pair[0])
        return own[: -MAX_OF_COMPANY - 1 : -1] + [precedent for _, precedent in ranked[:MAX_RECALLED]]

    def _read_up_to(self, horizon: int) -> list[tuple[frozenset[str], Precedent]]:
        closes = self._log.read_closes(max(0, horizon - MOST_COMPARED), horizon)
        return [(frozenset(one.body["features"]), one.body["precedent"]) for one in closes]


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


def write_recollection(precedents: Sequence[Precedent], seat: str) -> str:
    """Write what closed cases of one company showed of the seat's upgrades; "" where they showed nothing.

    Example: "Closed cases of this company showed: contractor transfer: stated 13 days, brought 19 days (75 %
              of its effect lost)."
    """
    lines = [
        f"{one['upgrade']}: stated {one['stated']}, brought {one['actual']} "
        f"({one['lost']} % of its effect lost)"
        for precedent in precedents
        for one in precedent["actuals"]
        if one["seat"] == seat
    ]
    return f"Closed cases of this company showed: {'; '.join(dict.fromkeys(lines))}." if lines else ""

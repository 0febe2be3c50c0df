"""Finds cases that repeat earlier ones: exactly, or nearly (MinHash over what the cases state).

A case is a near-duplicate when it shares LEAST_SIMILARITY of its statements with one kept before it. Whether
a case is kept depends on the cases of smaller index only.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal

import numpy as np
from datasketch import MinHash, MinHashLSH

from scenarios.base import Scenario
from scenarios.team import TeamScenario

LEAST_SIMILARITY = 0.9  # Jaccard, from which a case counts as a repeat
NUM_PERMUTATIONS = 128
ESTIMATE_SLACK = 0.15  # five standard errors of a sketch's estimate there
BANDS, ROWS = 10, 12  # finds 96 % of the pairs at 0.9, 99.96 % at 0.95, 0.07 % at 0.45
SEED = 1  # of the permutations

Case = Scenario | TeamScenario
Repeat = Literal["exact", "near"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """Fingerprint of a case's text. Example: Fingerprint(digest=b"...", signature=b"...")"""

    digest: bytes  # of all that the case states
    signature: bytes  # MinHash of it


def compute_fingerprint(case: Case) -> Fingerprint:
    """A pure function of the case."""
    statements = sorted(list_statements(case))
    sketch = MinHash(num_perm=NUM_PERMUTATIONS, seed=SEED)
    sketch.update_batch([statement.encode() for statement in statements])
    digest = sha256(json.dumps(statements).encode()).digest()[:16]
    return Fingerprint(digest=digest, signature=sketch.hashvalues.tobytes())


def list_statements(case: Case) -> frozenset[str]:
    """List what the case states: every fact's value with its place; the sentences of a case without facts.

    The places of list entries do not count; repeated statements are numbered.

    Example: {"options": {"A": {"base": 30}}} states "/options/A/base:30"
    """
    if isinstance(case, TeamScenario):
        options = {letter: [option.name, option.base] for letter, option in case.public.options.items()}
        seats = {role: seat.facts for role, seat in case.seats.items()}
        found = _walk({"options": options, "budget": case.public.budget, "seats": seats}, "")
    elif case.facts:
        found = _walk(case.facts, "")
    else:
        found = (sentence.strip() for sentence in re.split(r"[.\n]", case.brief))
    counts = Counter(statement for statement in found if statement)
    return frozenset(f"{statement}#{n}" for statement, count in counts.items() for n in range(count))


def _walk(value: Any, place: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _walk(inner, f"{place}/{key}")
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _walk(inner, f"{place}/")
    else:
        yield f"{place}:{value}"


def compute_similarity(one: frozenset[str], other: frozenset[str]) -> float:
    """Jaccard similarity of two sets, in [0, 1]."""
    return len(one & other) / len(one | other) if one or other else 1.0


class RepeatFilter:
    """Tells first occurrences from repeats; cases must come in index order.

    `load(index)` makes an earlier case again: candidates of the sketches are compared in full.
    """

    def __init__(self, load: Callable[[int], Case]) -> None:
        self._load = load
        self._digests: set[bytes] = set()
        self._sketches: dict[int, MinHash] = {}
        self._near = MinHashLSH(num_perm=NUM_PERMUTATIONS, params=(BANDS, ROWS))

    def find_repeat(self, index: int, fingerprint: Fingerprint) -> Repeat | None:
        """Kind of repeat of a case kept before; None for a new case, which is kept."""
        if fingerprint.digest in self._digests:
            return "exact"
        values = np.frombuffer(fingerprint.signature, dtype=np.uint32)
        sketch = MinHash(num_perm=NUM_PERMUTATIONS, seed=SEED, hashvalues=values, scheme="affine32")
        if any(self._is_near(index, sketch, earlier) for earlier in sorted(self._near.query(sketch))):
            return "near"
        self._digests.add(fingerprint.digest)
        self._sketches[index] = sketch
        self._near.insert(index, sketch, check_duplication=False)
        return None

    def _is_near(self, index: int, sketch: MinHash, earlier: int) -> bool:
        if sketch.jaccard(self._sketches[earlier]) < LEAST_SIMILARITY - ESTIMATE_SLACK:
            return False
        one, other = (list_statements(self._load(number)) for number in (index, earlier))
        return compute_similarity(one, other) >= LEAST_SIMILARITY

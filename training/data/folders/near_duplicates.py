"""Finds cases that repeat earlier ones: exactly up to names and order, or nearly (MinHash over records).

A case is a near-duplicate when it shares LEAST_SIMILARITY of its records (`scenarios.normal_form`) with one
kept before it. Short cases have 4 to 14 records, so that one other figure makes another case; in long ones
a tenth may differ. Whether a case is kept depends on the cases of smaller index only.
"""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

import numpy as np
from datasketch import MinHash, MinHashLSH

from scenarios.base import Scenario
from scenarios.normal_form import compute_similarity, list_records, normal_form
from scenarios.team.case import TeamScenario

LEAST_SIMILARITY = 0.9  # Jaccard, from which a case counts as a repeat; unrelated cases stay under 0.6
NUM_PERMUTATIONS = 128
ESTIMATE_SLACK = 0.15  # five standard errors of a sketch's estimate there
BANDS, ROWS = 10, 12  # finds 96 % of the pairs at 0.9, 99.96 % at 0.95, 0.07 % at 0.45
SEED = 1  # of the permutations

Case = Scenario | TeamScenario
Repeat = Literal["exact", "near"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """What is compared of a case. Example: Fingerprint(digest=b"...", signature=b"...")"""

    digest: bytes  # of the normal form
    signature: bytes  # MinHash of the records


def compute_fingerprint(case: Case) -> Fingerprint:
    """A pure function of the case."""
    sketch = MinHash(num_perm=NUM_PERMUTATIONS, seed=SEED)
    sketch.update_batch([record.encode() for record in sorted(list_records(case))])
    return Fingerprint(
        digest=sha256(normal_form(case).encode()).digest()[:16], signature=sketch.hashvalues.tobytes()
    )


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
        """How the case repeats one kept before; None for a new one, which is kept."""
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
        one, other = (list_records(self._load(number)) for number in (index, earlier))
        return compute_similarity(one, other) >= LEAST_SIMILARITY

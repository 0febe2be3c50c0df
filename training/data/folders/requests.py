"""Requests to a data folder: one request per family, checked against the arguments and what is there."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from roles.errors import UserError, unknown
from scenarios.base import MAX_DIFFICULTY, MIN_DIFFICULTY, NEW_SECTORS, SEALED, SPLITS, Split
from scenarios.company.sectors import SECTORS
from training.data.demonstrations import difficulty_of
from training.data.folders.index import DatasetIndex
from training.data.folders.near_duplicates import Case
from training.data.folders.rows import build_rows, find_sector_rule, generate_case
from training.data.teacher.index import TeacherIndex

SCENARIOS_PER_SHARD = 1000
NUM_PROBES = 3  # scenarios per difficulty that tell one version of a generator from another


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The request to one family.

    Example: Request(family="cto", split="train", seed=0, difficulties=(1, 2), count=10_000,
                     generator="5c...", sector=None)
    """

    family: str
    split: Split
    seed: int
    difficulties: tuple[int, ...]
    count: int  # scenarios, repeats not counted
    generator: str
    sector: str | None = None  # only cases of this sector; None: of all

    @property
    def num_shards(self) -> int:
        return -(-self.count // SCENARIOS_PER_SHARD)

    def path(self, number: int) -> str:
        return f"{self.family}/{self.split}-{number:05d}.parquet"

    def num_scenarios(self, number: int) -> int:
        return min(SCENARIOS_PER_SHARD, self.count - number * SCENARIOS_PER_SHARD)

    @property
    def stride(self) -> int:
        """Indices per case that is wanted, about."""
        return 1 if self.sector is None else len(SECTORS)

    def load(self, index: int) -> Case:
        difficulty = difficulty_of(index, self.difficulties)
        return generate_case(self.family, self.split, self.seed, index, difficulty)


def make_requests(
    families: Sequence[str],
    split: Split,
    seed: int,
    difficulties: Sequence[int],
    *,
    count: int,
    sector: str | None = None,
) -> list[Request]:
    """Return one request per family, each with the digest of its present generator."""
    return [
        Request(
            family=family,
            split=split,
            seed=seed,
            difficulties=tuple(difficulties),
            count=count,
            generator=compute_generator_digest(family, difficulties),
            sector=sector,
        )
        for family in families
    ]


def compute_generator_digest(family: str, difficulties: Sequence[int]) -> str:
    """sha256 over the rows of the first training scenarios at these difficulties.

    It changes with whatever the family's generator, oracle, tools or demonstrations write there.
    """
    rows = [
        build_rows(family, "train", 0, index, difficulty)
        for difficulty in difficulties
        for index in range(NUM_PROBES)
    ]
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()


def check_request(
    count: int,
    seed: int,
    difficulties: Sequence[int],
    split: str,
    processes: int | None,
    *,
    unseal: bool,
) -> Split:
    """Return the split, checked like the other arguments.

    Raises:
        UserError: out of range, repeated, or unknown; the test split without `unseal`.
    """
    if count < 1:
        raise UserError(f"count {count} must be 1 or more")
    if seed < 0:
        raise UserError(f"seed {seed} must be 0 or more")
    if processes is not None and processes < 1:
        raise UserError(f"processes {processes} must be 1 or more")
    if not difficulties or len(set(difficulties)) != len(difficulties):
        raise UserError(f"difficulties {list(difficulties)} must be one or more different numbers")
    for difficulty in difficulties:
        if not MIN_DIFFICULTY <= difficulty <= MAX_DIFFICULTY:
            raise UserError(f"difficulty {difficulty} must be {MIN_DIFFICULTY} to {MAX_DIFFICULTY}")
    if split not in SPLITS:
        raise unknown("split", split, list(SPLITS))
    if split in SEALED and not unseal:
        raise UserError(
            f"the {split} split is sealed: rows with its answers spoil the evaluation of what is trained on "
            "them; use train or validation, or give --unseal"
        )
    return cast(Split, split)


def check_sector(families: Sequence[str], sector: str | None, split: str) -> None:
    """Refuse a sector that is unknown or not in the split, and families whose cases play in none.

    Raises:
        UserError: names the sectors, or the family.
    """
    if sector is None:
        return
    known = [name for name, about in SECTORS.items() if about.held_out == (split == NEW_SECTORS)]
    if sector not in known:
        raise unknown(f"sector of the split {split}", sector, known)
    for family in families:
        if find_sector_rule(family) is None:
            raise UserError(f"the cases of {family} play in no sector; leave --sector or this family out")


def check_same_request(out: Path, requests: Sequence[Request]) -> None:
    """A folder may grow (more scenarios, families, splits) but never mixes seeds or loses scenarios."""
    if (out / TeacherIndex.FILE).exists():
        raise UserError(f"{out} holds demonstrations of a teacher; choose another --out")
    requested = {(request.family, request.split): request for request in requests}
    for shard in DatasetIndex.read(out).shards:
        request = requested.get((shard.family, shard.split))
        if request is None:
            continue
        held = (shard.seed, shard.difficulties, shard.sector)
        if held != (request.seed, request.difficulties, request.sector):
            raise UserError(
                f"{out} already holds {shard.family}/{shard.split} of seed {shard.seed}, difficulties"
                f" {list(shard.difficulties)} and sector {shard.sector or 'all'}; choose another --out"
            )
        if shard.generator != request.generator:
            raise UserError(
                f"{out} already holds {shard.family}/{shard.split} of another version of its generator;"
                " choose another --out"
            )
        numbers = {request.path(number): number for number in range(request.num_shards)}
        if shard.path not in numbers or request.num_scenarios(numbers[shard.path]) < shard.num_scenarios:
            raise UserError(
                f"{out} already holds more {shard.family}/{shard.split} scenarios than asked for;"
                " choose another --out or a larger --count"
            )

"""Sequences: the cases of one company in turn, which share its hidden traits."""

from itertools import count

from scenarios.base import Split
from scenarios.company.sectors import SECTORS
from scenarios.company.setting import draw_setting

MOST_SCANNED = 20_000  # indices that are looked at for one sequence


def list_companies() -> list[str]:
    """All companies, by name."""
    return [name for sector in SECTORS.values() for name in sector.companies]


def list_indices(company: str, split: Split, seed: int, difficulty: int, num_cases: int) -> list[int]:
    """The indices of the company's first cases; they are generated like any others.

    Raises:
        ValueError: no such company, or too few cases among MOST_SCANNED.
    """
    if company not in list_companies():
        raise ValueError(f"unknown company {company!r} (known: {', '.join(list_companies())})")
    found: list[int] = []
    for index in count():
        if len(found) == num_cases:
            return found
        if index == MOST_SCANNED:
            raise ValueError(f"{company} has {len(found)} cases among {MOST_SCANNED}, not {num_cases}")
        if company in draw_setting(split, seed, index, difficulty).situation:
            found.append(index)
    raise AssertionError

"""Every sector has enough names for the largest case, and none that a parser of texts could misread."""

import re
from itertools import combinations

import pytest

from scenarios.company.sectors import SECTORS
from scenarios.company.sectors.sector import Sector

LEAST = {"companies": 3, "options": 5, "components": 8, "people": 5, "packages": 8, "assets": 5, "items": 6}


def list_names(sector: Sector) -> list[str]:
    return [name for field in LEAST for name in getattr(sector, field)] + [
        *sector.controls,
        *sector.controls.values(),
    ]


def test_there_are_twenty_sectors() -> None:
    assert len(SECTORS) == 20


@pytest.mark.parametrize("sector", SECTORS.values(), ids=str)
def test_a_sector_has_enough_readable_names(sector: Sector) -> None:
    assert {field: len(getattr(sector, field)) for field in LEAST} == LEAST
    assert len(set(sector.controls)) == len(set(sector.controls.values())) == 9
    for names in (sector.components, sector.packages, sector.assets, sector.items, sector.people):
        assert len(set(names)) == len(names)
    assert not set(sector.assets) & set(sector.controls)
    assert all(re.fullmatch(r"[A-Za-z][A-Za-z -]*", name) for name in list_names(sector))
    assert not any(re.search(r"\b(then|or|from|by way of)\b", name) for name in sector.controls)
    assert "{company}" in sector.situation


def test_sectors_share_few_words() -> None:
    for one, other in combinations(SECTORS.values(), 2):
        own, others = set(list_names(one)), set(list_names(other))
        assert len(own & others) <= 0.15 * len(own), (one.name, other.name, own & others)

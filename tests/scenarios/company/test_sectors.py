"""Every sector has enough names for the largest case, and none that a parser of texts could misread."""

import re
from itertools import combinations, product

import pytest

from scenarios.company.sectors import SECTORS, SIBLINGS, SLOTS, Sector, name_attack

LISTS = {
    "companies": 3, "options": 5, "components": 8, "people": 5, "packages": 8, "assets": 5, "items": 6,
    "systems": 6,
}  # fmt: skip
SKILLS = {"engineering", "data", "testing", "training", "legal", "fitting"}
MOST_STEPS = {2: 4, 3: 6, 4: 8, 5: 9}  # of a threat graph, by its number of assets


def list_names(sector: Sector) -> list[str]:
    return [name for field in LISTS for name in getattr(sector, field)] + [
        *sector.controls,
        *sector.controls.values(),
    ]


def test_there_are_thirty_sectors_to_learn_from_and_six_held_out() -> None:
    assert sum(not sector.held_out for sector in SECTORS.values()) == 30
    assert sum(sector.held_out for sector in SECTORS.values()) == 6
    assert len(SLOTS) == 20
    assert sum(map(len, SIBLINGS.values())) == 10


@pytest.mark.parametrize("sector", SECTORS.values(), ids=str)
def test_a_sector_has_enough_readable_names(sector: Sector) -> None:
    """Every sector has as many names as another: figures do not change with the sector that tells them."""
    assert {field: len(getattr(sector, field)) for field in LISTS} == LISTS
    assert len(sector.controls) == len(set(sector.controls.values())) == len(sector.reached) == 9
    for names in (sector.components, sector.packages, sector.assets, sector.items, sector.people):
        assert len(set(names)) == len(names)
    assert not set(sector.assets) & set(sector.controls)
    assert all(re.fullmatch(r"[A-Za-z][A-Za-z -]*", name) for name in list_names(sector))
    assert not any(re.search(r"\b(then|or|from|by way of)\b", name) for name in sector.controls)
    assert set(sector.packages.values()) <= SKILLS
    assert len(sector.situations) == len(set(sector.situations)) == 3
    assert all(
        "{company}" in situation and not re.search(r"\d", situation) for situation in sector.situations
    )


@pytest.mark.parametrize("sector", SECTORS.values(), ids=str)
def test_steps_hit_only_assets_that_they_can(sector: Sector) -> None:
    """For every shape that a threat graph can have."""
    reached = dict(zip(sector.controls, sector.reached, strict=True))
    for num, most in MOST_STEPS.items():
        for lengths in product(range(1, 5 if num > 2 else 3), repeat=num):
            if sum(lengths) <= most:
                assets, steps = list(sector.assets[:num]), list(sector.controls)
                named = name_attack(sector, assets, steps, list(lengths))
                assert [len(own) for own in named] == list(lengths)
                assert len({step for own in named for step in own}) == sum(lengths)
                for asset, own in zip(assets, named, strict=True):
                    assert all(sector.assets.index(asset) in reached[step] for step in own)


def test_sectors_share_few_words() -> None:
    for one, other in combinations(SECTORS.values(), 2):
        own, others = set(list_names(one)), set(list_names(other))
        assert len(own & others) <= 0.1 * len(own), (one.name, other.name, own & others)

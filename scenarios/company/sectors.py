"""The sectors that cases play in: all that a case calls by name, read from `sectors.toml`.

Three situations of each sector ask for the same decision, so that options, components and work fit all of
them. Some sectors are held out: they occur in the split test-new-sectors alone.
"""

import random
import tomllib
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

from scenarios.base import NEW_SECTORS

NUM_WORDINGS = 4  # of a text, in all splits but test-new-sectors, which has the one after them
Reached = tuple[frozenset[int], ...]  # places of the assets that each step can hit


@dataclass(frozen=True, slots=True, kw_only=True)
class Sector:
    """Names that the cases of one sector are told with; they hold no digit, comma, colon or slash.

    Example: SECTORS["bank"].controls["stolen password"] == "security keys"
    """

    name: str
    companies: tuple[str, ...]
    situations: tuple[str, ...]  # who the company is and what has to be decided; hold "{company}"
    options: tuple[str, ...]  # ways that the company can go
    components: tuple[str, ...]  # of an architecture, in the order in which a request passes them
    people: tuple[str, ...]
    packages: dict[str, str]  # of a work plan, in the order of the work -> the skill that each needs
    assets: tuple[str, ...]  # that threats reach
    controls: dict[str, str]  # step of an attack or failure -> the control against it
    reached: Reached  # by step, in their order
    items: tuple[str, ...]  # bought by the unit, in tiers
    systems: tuple[str, ...]  # software, the central one first
    like: str | None  # the sector with whose draws it shares the figures of its cases
    held_out: bool


def draw_sector(words: random.Random, split: str, slot: str | None = None) -> Sector:
    """A sector of the split; `slot` limits it to this sector and those like it, where the split allows it."""
    if split == NEW_SECTORS:
        return SECTORS[words.choice([name for name, sector in SECTORS.items() if sector.held_out])]
    known = [name for name, sector in SECTORS.items() if not sector.held_out]
    return SECTORS[words.choice(known if slot is None else [slot, *SIBLINGS[slot]])]


def draw_wording(words: random.Random, split: str) -> int:
    """The number of the wording in which a case is told."""
    return NUM_WORDINGS if split == NEW_SECTORS else words.randrange(NUM_WORDINGS)


def name_attack(sector: Sector, assets: list[str], steps: list[str], lengths: list[int]) -> list[list[str]]:
    """Give the asset in each place as many steps as `lengths` says, all of which can hit it.

    `assets` and `steps` are shuffled names of the sector; assets are exchanged in place where that is needed.
    """
    spare = [name for name in sector.assets if name not in assets]
    place_of = {name: place for place, name in enumerate(sector.assets)}
    reached = dict(zip(sector.controls, sector.reached, strict=True))
    for order in permutations([*assets, *spare], len(assets)):
        taken: dict[str, int] = {}  # step -> slot
        slots = [place_of[name] for name, length in zip(order, lengths, strict=True) for _ in range(length)]

        def fill(slot: int, tried: set[str], taken: dict[str, int] = taken, slots: list[int] = slots) -> bool:
            for step in steps:
                if slots[slot] in reached[step] and step not in tried:
                    tried.add(step)
                    if step not in taken or fill(taken[step], tried):
                        taken[step] = slot
                        return True
            return False

        if all(fill(slot, set()) for slot in range(len(slots))):
            assets[:] = order
            by_slot = {slot: step for step, slot in taken.items()}
            names = iter([by_slot[slot] for slot in range(len(slots))])
            return [[next(names) for _ in range(length)] for length in lengths]
    raise ValueError(f"the steps of {sector.name} cannot hit assets {lengths} times")


def _split(text: str) -> tuple[str, ...]:
    return tuple(" ".join(name.split()) for name in text.split(","))


def _build_sector(name: str, told: dict[str, Any]) -> Sector:
    steps = [[part.strip() for part in line.split(":")] for line in told["steps"].strip().splitlines()]
    lists = {key: _split(told[key]) for key in ("companies", "options", "components", "people")}
    return Sector(
        name=name,
        situations=tuple(f"{told['opening']} {situation}" for situation in told["situations"]),
        packages=dict(pair.split(": ") for pair in _split(told["packages"])),
        controls={step: control for step, control, _ in steps},
        reached=tuple(frozenset(int(number) - 1 for number in hit.split()) for _, _, hit in steps),
        assets=_split(told["assets"]),
        items=_split(told["items"]),
        systems=_split(told["systems"]),
        like=told.get("like"),
        held_out=told.get("held_out", False),
        **lists,
    )


SECTORS: dict[str, Sector] = {
    name: _build_sector(name, told)
    for name, told in tomllib.loads(Path(__file__).with_suffix(".toml").read_text()).items()
}
SIBLINGS = {name: [other for other in SECTORS if SECTORS[other].like == name] for name in SECTORS}
SLOTS = tuple(name for name, sector in SECTORS.items() if not sector.held_out and sector.like is None)

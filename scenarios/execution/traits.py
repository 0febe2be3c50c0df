"""Lasting hidden traits of a company: kinds of upgrades that bring less than is stated, in all of its cases.

Nobody at the table is told. Once an upgrade is bought and in effect, its actual effect shows.
"""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from scenarios.company.domain import Structure
from scenarios.company.domains.architecture import WHOLE
from scenarios.company.records import CompanyCase
from scenarios.company.sectors import SECTORS
from scenarios.execution.shocks import price_option

FAIL_SHARE = 0.3  # of the groups of upgrades that fall short in one company
LOSSES = (60, 80, 100)  # percent of the stated effect that is lost
GROUPS: Mapping[str, tuple[str, ...]] = {  # seat -> groups that can fall short, by the names they begin with
    "cto": ("faster", "managed"),
    "coo": ("contractor", "extra shift"),
    "cost": ("committed", "premium"),
}  # of Risk every control is a group of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Trait:
    """One group of upgrades that falls short.

    Example: Trait(seat="coo", group="contractor", loss=60)
    """

    seat: str
    group: str
    loss: int  # percent of the stated effect


def draw_traits(world: int, company: str, sector: str) -> tuple[Trait, ...]:
    """The company's traits: every group falls short with probability FAIL_SHARE, independently."""
    rng = random.Random(f"traits/{world}/{company}")
    return tuple(
        Trait(seat=seat, group=group, loss=rng.choice(LOSSES))
        for seat, group in list_groups(sector)
        if rng.random() < FAIL_SHARE
    )


def list_groups(sector: str) -> list[tuple[str, str]]:
    """(seat, group) of everything that can fall short in a company of this sector."""
    groups = [(seat, group) for seat, names in GROUPS.items() for group in names]
    return groups + [("risk", control) for control in SECTORS[sector].controls.values()]


def find_group(seat: str, upgrade: str) -> str:
    """The group that an upgrade belongs to; its own name where it belongs to none that can fall short.

    Example: find_group("coo", "contractor transfer") == "contractor"
    """
    for group in GROUPS.get(seat, ()):
        if upgrade.startswith(f"{group} "):
            return group
    return upgrade


def _find_effect(structure: Structure, upgrade: Mapping[str, Any]) -> tuple[str, int] | None:
    """The figure that the upgrade changes, and its value without it; None for one that cannot fall short.

    A contractor who is slower than the owner changes nothing.
    """
    if "takes" in upgrade:
        return "takes", max(upgrade["takes"], structure["packages"][upgrade["package"]]["days"])
    if "latency" in upgrade or "availability" in upgrade:
        figure = "latency" if "latency" in upgrade else "availability"
        return figure, structure["components"][upgrade["component"]][figure]
    if "to" in upgrade:
        return "to", structure["steps"][upgrade["step"]]
    return next(((figure, 0) for figure in ("saves", "percent", "points") if figure in upgrade), None)


def weaken(structure: Structure, name: str, loss: int) -> dict[str, Any]:
    """The upgrade with this percentage of its stated effect lost; at 100 it changes nothing.

    A contractor who falls short needs longer: at 100 as long as the owner would. What is lost is rounded up.
    """
    upgrade = dict(structure["upgrades"][name])
    effect = _find_effect(structure, upgrade)
    if effect is not None:
        figure, without = effect
        gained = without - upgrade[figure]
        lost = -(-abs(gained) * loss // 100)
        upgrade[figure] += lost if gained > 0 else -lost
    assert min(value for value in upgrade.values() if isinstance(value, int)) >= 0, upgrade
    return upgrade


def apply_traits(case: CompanyCase, traits: Iterable[Trait]) -> CompanyCase:
    """The case as it really is: every upgrade of a group that falls short with its actual effect."""
    losses = {(trait.seat, trait.group): trait.loss for trait in traits}
    structures = {
        seat: {letter: _apply(structure, seat, losses) for letter, structure in own.items()}
        for seat, own in case.structures.items()
    }
    actual = replace(case, structures=structures)
    for option in case.options:
        actual = price_option(actual, option)
    return actual


def _apply(structure: Structure, seat: str, losses: Mapping[tuple[str, str], int]) -> dict[str, Any]:
    upgrades = {
        name: weaken(structure, name, losses[seat, find_group(seat, name)])
        if (seat, find_group(seat, name)) in losses and name not in structure.get("bought", ())
        else upgrade
        for name, upgrade in structure["upgrades"].items()
    }
    return {**structure, "upgrades": upgrades}


def describe_effect(upgrade: Mapping[str, Any]) -> str:
    """Return what the upgrade brings, in a few words.

    Example: describe_effect({"cost": 9, "package": "transfer", "takes": 13}) == "13 days"
    """
    if "takes" in upgrade:
        return f"{upgrade['takes']} days"
    if "saves" in upgrade:
        return f"{upgrade['saves']} days saved"
    if "latency" in upgrade:
        return f"{upgrade['latency']} ms"
    if "availability" in upgrade:
        return f"{100 * upgrade['availability'] / WHOLE:.2f} % up"
    if "to" in upgrade:
        return f"likelihood {upgrade['to']} %"
    if "percent" in upgrade:
        return f"{upgrade['percent']} % off"
    if "points" in upgrade:
        return f"{upgrade['points']} points"
    return "a fifth less time" if "person" in upgrade else "one more machine"


def measure_lost(structure: Structure, name: str, actual: Mapping[str, Any]) -> int:
    """Percent of the stated effect that the actual upgrade lacks; 0 for one that cannot fall short."""
    stated = structure["upgrades"][name]
    effect = _find_effect(structure, stated)
    if effect is None:
        return 0
    figure, without = effect
    whole, left = abs(without - stated[figure]), abs(without - actual[figure])
    return int(max(0, min(100, 100 * (whole - left) // max(1, whole))))

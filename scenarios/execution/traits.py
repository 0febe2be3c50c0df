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
from scenarios.execution.pricing import price_option

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


def weaken(structure: Structure, name: str, loss: int) -> dict[str, Any]:
    """The upgrade with this percentage of its stated effect lost; at 100 it changes nothing.

    A contractor who falls short needs longer: at 100 as long as the owner would.
    """
    upgrade = dict(structure["upgrades"][name])
    if "takes" in upgrade:
        days = structure["packages"][upgrade["package"]]["days"]
        upgrade["takes"] += -(-max(0, days - upgrade["takes"]) * loss // 100)
    elif "saves" in upgrade:
        upgrade["saves"] = upgrade["saves"] * (100 - loss) // 100
    elif "latency" in upgrade:
        stated = structure["components"][upgrade["component"]]["latency"]
        upgrade["latency"] += -(-(stated - upgrade["latency"]) * loss // 100)
    elif "availability" in upgrade:
        gained = upgrade["availability"] - structure["components"][upgrade["component"]]["availability"]
        upgrade["availability"] -= -(-gained * loss // 100)
    elif "to" in upgrade:
        upgrade["to"] += -(-(structure["steps"][upgrade["step"]] - upgrade["to"]) * loss // 100)
    elif "percent" in upgrade:
        upgrade["percent"] = upgrade["percent"] * (100 - loss) // 100
    elif "points" in upgrade:
        upgrade["points"] = upgrade["points"] * (100 - loss) // 100
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
    """What the upgrade brings, in a few words.

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
    if "takes" in stated:
        days = structure["packages"][stated["package"]]["days"]
        whole, lacking = days - stated["takes"], actual["takes"] - stated["takes"]
    elif "latency" in stated:
        slow = structure["components"][stated["component"]]["latency"]
        whole, lacking = slow - stated["latency"], actual["latency"] - stated["latency"]
    elif "availability" in stated:
        poor = structure["components"][stated["component"]]["availability"]
        whole, lacking = stated["availability"] - poor, stated["availability"] - actual["availability"]
    elif "to" in stated:
        whole = structure["steps"][stated["step"]] - stated["to"]
        lacking = actual["to"] - stated["to"]
    else:
        effect = next((name for name in ("saves", "percent", "points") if name in stated), None)
        if effect is None:
            return 0
        whole, lacking = stated[effect], stated[effect] - actual[effect]
    return int(max(0, min(100, 100 * lacking // max(1, whole))))

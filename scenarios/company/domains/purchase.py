"""The Cost officer's domain: items at list price, commitments that save money, tiers that add quality.

Of every item at most one tier is bought. Tiers of the same kind earn a discount together.
"""

import random
from typing import Any

from roles.cost import RULES
from scenarios.company.domain import (
    NUM_UPGRADES,
    Choice,
    Domain,
    Figures,
    Request,
    Structure,
    Terms,
    draw_cost,
    write_costs,
)

NUM_ITEMS = (2, 2, 3, 3, 3, 4, 4, 5, 5, 5)  # by difficulty 1-10
BUNDLE_COUNT = (2, 2, 2, 2, 2, 3, 3, 3, 3, 3)  # tiers of one kind that earn the discount
KINDS = ("committed", "premium")
MOST_SHORT = 6  # points under the floor, where no part is to reach it
TERMS = (
    "Every k$ saved is worth 1 k$. Every quality point is worth {point} k$, up to the ceiling of {ceiling} "
    "points. Hard limit: quality of at least {quality} points (the floor).",
    "A k$ saved counts as 1 k$. A point of quality counts as {point} k$, up to {ceiling} points in all. The "
    "floor is a hard limit: quality of no less than {quality} points.",
    "Savings count in full, 1 k$ for every k$. Quality brings {point} k$ a point, and nothing beyond the "
    "ceiling of {ceiling} points. Hard limit: quality may not fall below {quality} points, the floor.",
    "Each k$ that is saved is worth 1 k$. Each point of quality adds {point} k$, for {ceiling} points at "
    "most. Hard limit: a quality of {quality} points or more, the floor.",
    "The floor is a hard limit: at least {quality} points of quality. Quality is worth {point} k$ a point, "
    "up to {ceiling} points and no further. What is saved is worth its amount, 1 k$ per k$.",
)


def draw_terms(rng: random.Random) -> Terms:
    """Quality floor and ceiling, and what a point is worth."""
    floor = rng.randint(9, 15)
    return Terms(
        rates={"point": rng.randint(3, 5), "ceiling": floor + rng.randint(3, 6)}, limits={"quality": floor}
    )


def draw(rng: random.Random, request: Request) -> dict[str, Any]:
    """A candidate price list; its quality aims at one side of the floor."""
    level = request.difficulty - 1
    names = rng.sample(request.sector.items, NUM_ITEMS[level])
    floor = request.terms.limits["quality"]
    quality = floor - rng.randint(1, 2) if request.breaks_limit else floor + rng.randint(0, 2)
    if request.vetoes:
        quality = max(len(names), floor - MOST_SHORT)
    points = [1] * len(names)
    for _ in range(quality - len(names)):
        points[rng.randrange(len(names))] += 1
    items = {
        name: {"price": rng.randint(20, 80), "quality": own} for name, own in zip(names, points, strict=True)
    }
    off = rng.randint(1, 2)
    tiers = [(kind, name) for name in names for kind in KINDS]
    drawn = set(rng.sample(tiers, NUM_UPGRADES[level]))
    upgrades: dict[str, dict[str, Any]] = {}
    for kind, name in tiers:
        if (kind, name) not in drawn:
            continue
        upgrade: dict[str, Any] = {"cost": off + draw_cost(rng, request.price_level), "item": name}
        if kind == "committed":
            upgrade["percent"] = rng.randint(10, 40)
        else:
            upgrade["points"] = 1 if request.vetoes else rng.randint(1, 3)
        upgrades[f"{kind} {name}"] = upgrade
    return {
        "items": items,
        "bundle": {"count": BUNDLE_COUNT[level], "off": off},
        "upgrades": upgrades,
    }


def list_choices(structure: Structure) -> list[Choice]:
    """Every set with at most one tier per item, in the structure's order, () first."""
    choices: list[Choice] = [()]
    item, before = None, choices
    for name, upgrade in structure["upgrades"].items():
        if upgrade["item"] != item:
            item, before = upgrade["item"], list(choices)
        choices += [(*choice, name) for choice in before]
    return choices


def price(structure: Structure, choice: Choice) -> int:
    """Cost after the bundle discounts."""
    upgrades, bundle = structure["upgrades"], structure["bundle"]
    cost = num_committed = 0
    for name in choice:
        upgrade = upgrades[name]
        cost += upgrade["cost"]
        num_committed += "percent" in upgrade
    for count in (num_committed, len(choice) - num_committed):
        if count >= bundle["count"]:
            cost -= count * bundle["off"]
    return cost


def measure(structure: Structure, choice: Choice) -> dict[str, int]:
    """Saving and quality, by adding up what each tier changes."""
    items, upgrades = structure["items"], structure["upgrades"]
    saving, quality = 0, 0
    for item in items.values():
        quality += item["quality"]
    for name in choice:
        upgrade = upgrades[name]
        if "percent" in upgrade:
            saving += items[upgrade["item"]]["price"] * upgrade["percent"] // 100
        else:
            quality += upgrade["points"]
    return {"saving": saving, "quality": quality}


def measure_again(structure: Structure, choice: Choice) -> tuple[int, dict[str, int]]:
    """The same item by item: bill before and after, quality after, and the tiers' costs one by one."""
    bundle, fees = structure["bundle"], {kind: list[int]() for kind in KINDS}
    bill_before = bill_after = quality = 0
    for item, facts in structure["items"].items():
        bought = [name for name in choice if structure["upgrades"][name]["item"] == item]
        if len(bought) > 1:
            raise ValueError(f"{item} has {len(bought)} tiers")
        bill_before += facts["price"]
        bill_after += facts["price"]
        quality += facts["quality"]
        for name in bought:
            upgrade = structure["upgrades"][name]
            fees[name.split()[0]].append(upgrade["cost"])
            bill_after -= facts["price"] * upgrade.get("percent", 0) // 100
            quality += upgrade.get("points", 0)
    cost = sum(
        fee - (bundle["off"] if len(same) >= bundle["count"] else 0) for same in fees.values() for fee in same
    )
    return cost, {"saving": bill_before - bill_after, "quality": quality}


def value(terms: Terms, figures: Figures) -> int:
    """Saving, and points up to the ceiling at their rate."""
    return figures["saving"] + terms.rates["point"] * min(figures["quality"], terms.rates["ceiling"])


def keeps_limit(terms: Terms, figures: Figures) -> bool:
    return figures["quality"] >= terms.limits["quality"]


def describe(structure: Structure) -> str:
    lines = ["Items:"]
    for name, item in structure["items"].items():
        lines.append(f"{name}: list price {item['price']}, quality {item['quality']}")
    lines.append("Upgrades:")
    for name, upgrade in structure["upgrades"].items():
        effect = (
            f"{upgrade['percent']} % off {upgrade['item']}"
            if "percent" in upgrade
            else f"quality of {upgrade['item']} plus {upgrade['points']}"
        )
        lines.append(f"{name}: cost {upgrade['cost']}, {effect}")
    return "\n".join([*lines, "Bundle:", _write_bundle(structure)])


def _write_bundle(structure: Structure) -> str:
    bundle = structure["bundle"]
    return f"with at least {bundle['count']} tiers of one kind each of them costs {bundle['off']} less"


def write_upgrades(structure: Structure) -> str:
    """Names and costs of the tiers, and the bundle discount."""
    return f"{write_costs(structure)}; {_write_bundle(structure)}"


def write_figures(figures: Figures) -> str:
    return f"saving {figures['saving']} k$, quality {figures['quality']}"


DOMAIN = Domain(
    seat="cost",
    draw_terms=draw_terms,
    draw=draw,
    list_choices=list_choices,
    price=price,
    measure=measure,
    measure_again=measure_again,
    value=value,
    keeps_limit=keeps_limit,
    describe=describe,
    write_upgrades=write_upgrades,
    write_figures=write_figures,
    subject="price list",
    rules=RULES,
    terms=TERMS,
)

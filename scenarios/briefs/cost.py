"""Brief of family cost: price list, quality floor, budget and discount."""

from collections.abc import Mapping
from typing import Any

from scenarios.base import Form
from scenarios.briefs.forms import Fact, Record, Sheet, vocabulary, write_form


def write_brief(sector: str, facts: Mapping[str, Any], form: Form) -> str:
    """What the cost controller reads."""
    return _write_lines(sector, facts) if form == "lines" else write_form(_lay_out(sector, facts), form)


def basic_quality(facts: Mapping[str, Any]) -> int:
    """Quality of the plan that takes tier 1 of everything."""
    return sum(tiers[0][1] for tiers in facts["items"].values())


def _list_upgrades(tiers: list[list[int]]) -> list[tuple[int, int, int]]:
    """Of every dearer tier its number, surcharge and gain in quality over tier 1."""
    (price, points), *dearer = tiers
    return [(tier, more - price, better - points) for tier, (more, better) in enumerate(dearer, start=2)]


def _write_lines(sector: str, facts: Mapping[str, Any]) -> str:
    first = f"{sector.capitalize()} case. Basic quality {basic_quality(facts)}, at least {facts['floor']}."
    if facts["budget"] is not None:
        first += f" Budget {facts['budget']}."
    if facts["discount"]:
        first += f" Discount {facts['discount']['off']} each when {facts['discount']['count']} share a tier."
    lines = [first]
    for item, tiers in facts["items"].items():
        upgrades = (f"{tier} +{more} +{better}" for tier, more, better in _list_upgrades(tiers))
        lines.append(f"{item} {tiers[0][0]} {' '.join(upgrades)}")
    return "\n".join(lines)


def _lay_out(sector: str, facts: Mapping[str, Any]) -> Sheet:
    basic, floor = basic_quality(facts), facts["floor"]
    stated = [
        Fact(
            label="quality with tier 1 throughout",
            value=str(basic),
            sentence=f"With tier 1 throughout quality is {basic}.",
        ),
        Fact(label="quality at least", value=str(floor), sentence=f"Quality must come to {floor} or more."),
    ]
    if (budget := facts["budget"]) is not None:
        sentence = f"No more than {budget} k$ can be spent."
        stated.append(Fact(label="budget (k$)", value=str(budget), sentence=sentence))
    if discount := facts["discount"]:
        off, count = discount["off"], discount["count"]
        sentence = f"Where {count} or more items share one tier, each of these costs {off} k$ less."
        stated.append(
            Fact(label="discount", value=f"{off} k$ each from {count} in one tier", sentence=sentence)
        )
    return Sheet(
        reader="Cost",
        sector=sector,
        subject=vocabulary(sector).order,
        task="Take one tier of every item so that the total is as low as possible.",
        facts=tuple(stated),
        columns=("item", "tier 1 (k$)", "tier 2", "tier 3"),
        records=tuple(_lay_out_item(item, tiers) for item, tiers in facts["items"].items()),
    )


def _lay_out_item(item: str, tiers: list[list[int]]) -> Record:
    upgrades = _list_upgrades(tiers)
    more = [f"in tier {tier} {extra} k$ more, with {gain} more quality" for tier, extra, gain in upgrades]
    return Record(
        cells=(item, str(tiers[0][0]), *(f"+{extra} k$ +{gain} quality" for _, extra, gain in upgrades)),
        sentence=f"Item {item} costs {tiers[0][0]} k$ in tier 1, {'; '.join(more)}.",
    )

"""A seat without a domain: its upgrades stand in a list with cost and worth, its limit as options.

Facts: {"upgrades": {"A": {"escrow account": {"cost": 4, "worth": 9}}}, "needs": {"A": ["escrow account"]},
"veto": ["C"]}. Costs and worths of several upgrades add up. An option under `needs` breaks the seat's limit
unless all the upgrades named there are bought, one under `veto` whatever is bought. Every key may be left
out.
"""

from collections.abc import Mapping, Sequence

from scenarios.company.domain import list_subsets
from scenarios.company.records import Part
from scenarios.team.playable import Seat


def is_listed(seat: Seat) -> bool:
    """Return whether the seat's parts stand in a list (a seat that has words alone is none)."""
    return any(key in seat.facts for key in ("upgrades", "needs", "veto"))


def upgrades_on(seat: Seat, option: str) -> Mapping[str, Mapping[str, int]]:
    """Name -> cost and worth of what can be bought on the option."""
    upgrades: Mapping[str, Mapping[str, Mapping[str, int]]] = seat.facts.get("upgrades", {})
    return upgrades.get(option, {})


def needed_on(seat: Seat, option: str) -> tuple[str, ...]:
    """The upgrades without which the option breaks the seat's limit."""
    needs: Mapping[str, Sequence[str]] = seat.facts.get("needs", {})
    return tuple(needs.get(option, ()))


def list_parts(seat: Seat, option: str) -> tuple[Part, ...]:
    """Every set of the listed upgrades, () first."""
    upgrades, needed = upgrades_on(seat, option), needed_on(seat, option)
    is_vetoed = option in seat.facts.get("veto", ())
    return tuple(
        Part(
            seat=seat.role,
            option=option,
            choice=choice,
            cost=sum(upgrades[name]["cost"] for name in choice),
            worth=sum(upgrades[name]["worth"] for name in choice),
            keeps_limit=not is_vetoed and set(needed) <= set(choice),
            figures={},
        )
        for choice in list_subsets({"upgrades": upgrades})
    )
